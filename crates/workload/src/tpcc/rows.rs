//! The columns of the nine tables as fixed-width rows (clause 1.3).
//!
//! A row holds the columns that its key does not; integers are little-endian, money is in cents,
//! rates are in ten-thousandths, dates are nanoseconds with zero for null, texts are padded with
//! zeroes to the column's width. So a row keeps its length under every update, and has about the
//! size that clause 4.2.2 reckons with.
//!
//! ```text
//! table        key                                      key + row   clause 4.2.2
//! WAREHOUSE    w                                         4 +  91        89
//! DISTRICT     w d                                       5 +  95        95
//! CUSTOMER     w d c                                     9 + 665       655
//! HISTORY      w d date terminal                        15 +  37        46
//! NEW-ORDER    w d o                                     9 +   0         8
//! ORDER        w d o                                     9 +  15        24
//! ORDER-LINE   w d o number                             10 +  45        54
//! ITEM         i                                         4 +  82        82
//! STOCK        w i                                       8 + 304       306
//! by last name w d last first c                         41 +   0
//! by customer  w d c o                                  13 +   0
//! ```
//!
//! - W1: offsets follow from the order of the fields; `SIZE` is their sum, and is the stored
//!   length.
//! - W2: `check` refuses bytes of another length, so that getters never leave the row.

use crate::Error;

/// A column of fixed width in a row.
pub trait Column {
    /// Bytes in the row.
    const SIZE: usize;
    /// What a getter returns and a setter takes.
    type Item<'a>;
    /// Reads the column, the first `SIZE` of `bytes`.
    fn read(bytes: &[u8]) -> Self::Item<'_>;
    /// Writes the column, all of `bytes`.
    fn write(bytes: &mut [u8], item: Self::Item<'_>);
}

macro_rules! integer_column {
    ($($int:ty),*) => {$(
        impl Column for $int {
            const SIZE: usize = size_of::<$int>();
            type Item<'a> = $int;
            fn read(bytes: &[u8]) -> $int {
                <$int>::from_le_bytes(bytes[..Self::SIZE].try_into().expect("a column's bytes"))
            }
            fn write(bytes: &mut [u8], item: $int) {
                bytes.copy_from_slice(&item.to_le_bytes());
            }
        }
    )*};
}
integer_column!(u8, u16, i16, u32, u64, i64);

/// A text: read without its padding, padded with zeroes when written.
impl<const N: usize> Column for [u8; N] {
    const SIZE: usize = N;
    type Item<'a> = &'a [u8];
    fn read(bytes: &[u8]) -> &[u8] {
        let padding = bytes[..N].iter().rev().take_while(|&&byte| byte == 0).count();
        &bytes[..N - padding]
    }
    fn write(bytes: &mut [u8], item: &[u8]) {
        let length = item.len().min(N);
        bytes[..length].copy_from_slice(&item[..length]);
        bytes[length..].fill(0);
    }
}

/// Defines a row: its size, a getter and a setter for each column, in the order of storage.
macro_rules! row {
    ($(#[$doc:meta])* $name:ident { $($column:ident, $set:ident: $ty:ty;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<B>(B);

        impl $name<()> {
            /// Bytes of a stored row.
            pub const SIZE: usize = 0 $(+ <$ty as Column>::SIZE)*;
            /// A row of zeroes, to be filled by setters.
            pub const fn new() -> $name<[u8; Self::SIZE]> {
                $name([0; Self::SIZE])
            }
            /// The stored row `bytes`, read in place.
            ///
            /// # Errors
            ///
            /// [`Error::MalformedRow`] if `bytes` have not the length of this row.
            pub fn check(bytes: &[u8]) -> Result<$name<&[u8]>, Error> {
                if bytes.len() != Self::SIZE {
                    return Err(Error::MalformedRow { table: stringify!($name) });
                }
                Ok($name(bytes))
            }
            /// The row `bytes`, changed in place.
            ///
            /// # Errors
            ///
            /// [`Error::MalformedRow`] if `bytes` have not the length of this row.
            pub fn change(bytes: &mut [u8]) -> Result<$name<&mut [u8]>, Error> {
                if bytes.len() != Self::SIZE {
                    return Err(Error::MalformedRow { table: stringify!($name) });
                }
                Ok($name(bytes))
            }
        }
        impl<B: AsRef<[u8]>> $name<B> {
            /// The stored bytes.
            pub fn bytes(&self) -> &[u8] {
                self.0.as_ref()
            }
        }
        row!(@columns $name, 0, $($column, $set: $ty;)*);
    };
    (@columns $name:ident, $at:expr,) => {};
    (@columns $name:ident, $at:expr, $column:ident, $set:ident: $ty:ty; $($rest:tt)*) => {
        impl<B: AsRef<[u8]>> $name<B> {
            #[doc = concat!("The column `", stringify!($column), "`.")]
            pub fn $column(&self) -> <$ty as Column>::Item<'_> {
                <$ty as Column>::read(&self.0.as_ref()[$at..$at + <$ty as Column>::SIZE])
            }
        }
        impl<B: AsMut<[u8]>> $name<B> {
            #[doc = concat!("Sets the column `", stringify!($column), "`.")]
            pub fn $set(&mut self, item: <$ty as Column>::Item<'_>) {
                let bytes = &mut self.0.as_mut()[$at..$at + <$ty as Column>::SIZE];
                <$ty as Column>::write(bytes, item);
            }
        }
        row!(@columns $name, $at + <$ty as Column>::SIZE, $($rest)*);
    };
}

row! {
    /// A row of WAREHOUSE. Key: W_ID.
    Warehouse {
        ytd, set_ytd: i64;
        tax, set_tax: u16;
        name, set_name: [u8; 10];
        street_1, set_street_1: [u8; 20];
        street_2, set_street_2: [u8; 20];
        city, set_city: [u8; 20];
        state, set_state: [u8; 2];
        zip, set_zip: [u8; 9];
    }
}

row! {
    /// A row of DISTRICT. Key: D_W_ID, D_ID.
    District {
        ytd, set_ytd: i64;
        next_order, set_next_order: u32;
        tax, set_tax: u16;
        name, set_name: [u8; 10];
        street_1, set_street_1: [u8; 20];
        street_2, set_street_2: [u8; 20];
        city, set_city: [u8; 20];
        state, set_state: [u8; 2];
        zip, set_zip: [u8; 9];
    }
}

row! {
    /// A row of CUSTOMER. Key: C_W_ID, C_D_ID, C_ID.
    Customer {
        balance, set_balance: i64;
        ytd_payment, set_ytd_payment: i64;
        payments, set_payments: u32;
        deliveries, set_deliveries: u32;
        credit_limit, set_credit_limit: i64;
        discount, set_discount: u16;
        credit, set_credit: [u8; 2];
        last, set_last: [u8; 16];
        first, set_first: [u8; 16];
        middle, set_middle: [u8; 2];
        street_1, set_street_1: [u8; 20];
        street_2, set_street_2: [u8; 20];
        city, set_city: [u8; 20];
        state, set_state: [u8; 2];
        zip, set_zip: [u8; 9];
        phone, set_phone: [u8; 16];
        since, set_since: u64;
        data, set_data: [u8; 500];
    }
}

row! {
    /// A row of HISTORY. Key: H_W_ID, H_D_ID, H_DATE, terminal (the specification wants no key).
    History {
        customer_warehouse, set_customer_warehouse: u32;
        customer_district, set_customer_district: u8;
        customer, set_customer: u32;
        amount, set_amount: u32;
        data, set_data: [u8; 24];
    }
}

row! {
    /// A row of ORDER. Key: O_W_ID, O_D_ID, O_ID. A carrier of zero is null.
    Order {
        customer, set_customer: u32;
        entry_date, set_entry_date: u64;
        carrier, set_carrier: u8;
        lines, set_lines: u8;
        all_local, set_all_local: u8;
    }
}

row! {
    /// A row of ORDER-LINE. Key: OL_W_ID, OL_D_ID, OL_O_ID, OL_NUMBER. A delivery date of zero is
    /// null.
    OrderLine {
        item, set_item: u32;
        supply_warehouse, set_supply_warehouse: u32;
        delivery_date, set_delivery_date: u64;
        quantity, set_quantity: u8;
        amount, set_amount: u32;
        district_info, set_district_info: [u8; 24];
    }
}

row! {
    /// A row of ITEM. Key: I_ID.
    Item {
        image, set_image: u32;
        price, set_price: u32;
        name, set_name: [u8; 24];
        data, set_data: [u8; 50];
    }
}

row! {
    /// A row of STOCK. Key: S_W_ID, S_I_ID. `districts` is S_DIST_01 to S_DIST_10, 24 bytes each.
    Stock {
        quantity, set_quantity: i16;
        ytd, set_ytd: u32;
        orders, set_orders: u32;
        remote_orders, set_remote_orders: u32;
        districts, set_districts: [u8; 240];
        data, set_data: [u8; 50];
    }
}

/// Bytes of S_DIST_xx and of OL_DIST_INFO.
pub const DISTRICT_INFO_SIZE: usize = 24;

const _: () = assert!(Warehouse::SIZE == 91 && District::SIZE == 95 && Customer::SIZE == 665);
const _: () = assert!(History::SIZE == 37 && Order::SIZE == 15 && OrderLine::SIZE == 45);
const _: () = assert!(Item::SIZE == 82 && Stock::SIZE == 304);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_keep_what_is_set() {
        let mut row = Customer::new();
        row.set_balance(-1000);
        row.set_last(b"BARBARBAR");
        row.set_data(&[b'x'; 600]);
        row.set_since(7);
        let stored = row.bytes().to_vec();
        let read = Customer::check(&stored).expect("a whole row");
        assert_eq!((read.balance(), read.last(), read.since()), (-1000, &b"BARBARBAR"[..], 7));
        assert_eq!((read.data().len(), read.first()), (500, &b""[..]));
    }

    #[test]
    fn bytes_of_another_length_are_refused() {
        assert!(Order::check(&[0; 14]).is_err());
        assert!(Order::change(&mut [0; 16]).is_err());
    }
}

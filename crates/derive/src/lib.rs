//! Derives `terrace::Key` and `terrace::Value` for structs; `terrace` exports both with its feature
//! `derive`.
//!
//! A struct is encoded as the tuple of its fields. It is its own view: fields are owned, and each
//! is a `KeyField` or a `ValueField`. What a table remembers of the type is the struct's name and
//! the types of its fields, so a field that is added or taken away is noticed when the table is
//! opened; renaming a field is not.

#![forbid(unsafe_code)]

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, LitStr, Member, Type};

/// A struct whose traits are derived.
struct Row {
    name: syn::Ident,
    /// What tables remember it by.
    stored_name: String,
    fields: Vec<(Member, Type)>,
}

/// Derives `Key`, `KeyPart` and `KeyField` for a struct that is `Clone` and whose fields are
/// `KeyField`s: integers, `bool`, `char`, `String`, `Vec<u8>`, options, arrays and tuples of them,
/// and structs that derive `Key`.
///
/// Keys sort by the first field, then by the second, as `Ord` does if it is derived.
/// `#[terrace(name = "...")]` sets the name that tables remember: then the struct can be renamed.
#[proc_macro_derive(Key, attributes(terrace))]
pub fn derive_key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive(input, key)
}

/// Derives `Value` and `ValueField` for a struct that is `Clone` and whose fields are
/// `ValueField`s: numbers, `bool`, `String`, `Vec<u8>`, options, arrays and tuples of them, and
/// structs that derive `Value`.
///
/// `#[terrace(name = "...")]` sets the name that tables remember: then the struct can be renamed.
#[proc_macro_derive(Value, attributes(terrace))]
pub fn derive_value(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive(input, value)
}

fn derive(
    input: proc_macro::TokenStream,
    implement: fn(&Row) -> TokenStream,
) -> proc_macro::TokenStream {
    let row = syn::parse(input).and_then(row);
    row.map_or_else(Error::into_compile_error, |row| implement(&row)).into()
}

/// The struct that `input` is.
///
/// # Errors
///
/// Where it is something else: an enum, a struct with parameters or without fields.
fn row(input: DeriveInput) -> Result<Row, Error> {
    let Data::Struct(data) = &input.data else {
        let what = "only structs can be derived: implement the trait for this type, or store it \
                    as `Postcard<T>` (feature `serde`)";
        return Err(Error::new(input.ident.span(), what));
    };
    if !input.generics.params.is_empty() {
        let what = "a struct with type parameters or lifetimes cannot be derived";
        return Err(Error::new(input.generics.span(), what));
    }
    let fields: Vec<_> =
        data.fields.members().zip(data.fields.iter().map(|f| f.ty.clone())).collect();
    if fields.is_empty() {
        let what = "a struct without fields has nothing to store: use `()`";
        return Err(Error::new(input.ident.span(), what));
    }
    let mut stored_name = input.ident.to_string();
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("terrace")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("name") {
                return Err(meta.error("known here is `name = \"...\"`"));
            }
            stored_name = meta.value()?.parse::<LitStr>()?.value();
            Ok(())
        })?;
    }
    Ok(Row { name: input.ident, stored_name, fields })
}

impl Row {
    /// The name of the type for tables: that of the struct, and those of the fields' types.
    fn type_name(&self, of: &TokenStream) -> TokenStream {
        let (name, types) = (&self.stored_name, self.fields.iter().map(|field| &field.1));
        quote! {
            fn type_name() -> ::std::string::String {
                let fields = [#(<#types as #of>::type_name()),*];
                ::std::format!("{}({})", #name, fields.join(","))
            }
        }
    }

    /// Variables for the fields while they are decoded.
    fn variables(&self) -> Vec<syn::Ident> {
        (0..self.fields.len()).map(|at| format_ident!("field_{at}")).collect()
    }

    /// The field trait: the struct is its own view.
    fn field_trait(&self, of: &TokenStream) -> TokenStream {
        let name = &self.name;
        quote! {
            #[automatically_derived]
            impl #of for #name {
                fn as_view(&self) -> #name {
                    ::std::clone::Clone::clone(self)
                }
                fn from_view(view: #name) -> #name {
                    view
                }
            }
        }
    }
}

fn key(row: &Row) -> TokenStream {
    let name = &row.name;
    let type_name = row.type_name(&quote!(::terrace::Key));
    let field_trait = row.field_trait(&quote!(::terrace::KeyField));
    let (members, types): (Vec<_>, Vec<_>) = row.fields.iter().cloned().unzip();
    let variables = row.variables();
    quote! {
        #[automatically_derived]
        impl ::terrace::Key for #name {
            type View<'a> = #name;
            #type_name
            fn encode(view: &#name, out: &mut ::std::vec::Vec<u8>) {
                <#name as ::terrace::KeyPart>::encode_part(view, out);
            }
            fn decode(bytes: &[u8]) -> ::std::option::Option<#name> {
                let (key, rest) = <#name as ::terrace::KeyPart>::decode_part(bytes)?;
                rest.is_empty().then_some(key)
            }
        }
        #[automatically_derived]
        impl ::terrace::KeyPart for #name {
            fn encode_part(view: &#name, out: &mut ::std::vec::Vec<u8>) {
                #(<#types as ::terrace::KeyPart>::encode_part(
                    &<#types as ::terrace::KeyField>::as_view(&view.#members),
                    out,
                );)*
            }
            fn decode_part(bytes: &[u8]) -> ::std::option::Option<(#name, &[u8])> {
                #(let (#variables, bytes) = <#types as ::terrace::KeyPart>::decode_part(bytes)?;)*
                ::std::option::Option::Some((
                    #name { #(#members: <#types as ::terrace::KeyField>::from_view(#variables)),* },
                    bytes,
                ))
            }
        }
        #field_trait
    }
}

fn value(row: &Row) -> TokenStream {
    let name = &row.name;
    let type_name = row.type_name(&quote!(::terrace::Value));
    let field_trait = row.field_trait(&quote!(::terrace::ValueField));
    let (members, types): (Vec<_>, Vec<_>) = row.fields.iter().cloned().unzip();
    let variables = row.variables();
    let (last_member, parts) = members.split_last().expect("a row has fields");
    let (last_type, part_types) = types.split_last().expect("a row has fields");
    let (last_variable, part_variables) = variables.split_last().expect("a row has fields");
    quote! {
        #[automatically_derived]
        impl ::terrace::Value for #name {
            type View<'a> = #name;
            #type_name
            fn encode(view: &#name, out: &mut ::std::vec::Vec<u8>) {
                #(::terrace::derived::encode_part::<#part_types>(
                    &<#part_types as ::terrace::ValueField>::as_view(&view.#parts),
                    out,
                );)*
                <#last_type as ::terrace::Value>::encode(
                    &<#last_type as ::terrace::ValueField>::as_view(&view.#last_member),
                    out,
                );
            }
            fn decode(bytes: &[u8]) -> ::std::option::Option<#name> {
                #(let (#part_variables, bytes) =
                    ::terrace::derived::decode_part::<#part_types>(bytes)?;)*
                let #last_variable = <#last_type as ::terrace::Value>::decode(bytes)?;
                ::std::option::Option::Some(#name {
                    #(#members: <#types as ::terrace::ValueField>::from_view(#variables)),*
                })
            }
            fn encoded_len() -> ::std::option::Option<usize> {
                ::std::option::Option::Some(
                    0 #(+ <#types as ::terrace::Value>::encoded_len()?)*
                )
            }
        }
        #field_trait
    }
}

//! A table of text for standard output: a heading, and cells aligned by column.

/// Rows of cells below a heading.
pub struct Table {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub fn new<const N: usize>(heading: [&str; N]) -> Table {
        Table { heading: heading.map(str::to_string).to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        assert_eq!(cells.len(), self.heading.len(), "a row has a cell for each column");
        self.rows.push(cells.to_vec());
    }

    /// Adds a column on the right, with a cell for each row that is there.
    pub fn column(&mut self, heading: &str, cells: Vec<String>) {
        assert_eq!(cells.len(), self.rows.len(), "a column has a cell for each row");
        self.heading.push(heading.to_string());
        self.rows.iter_mut().zip(cells).for_each(|(row, cell)| row.push(cell));
    }

    /// Its rows as HTML.
    pub fn html(&self) -> String {
        let row = |tag: &str, row: &[String]| {
            let cells: String = row.iter().map(|text| cell(tag, text)).collect();
            format!("<tr>{cells}</tr>")
        };
        let rows: String = self.rows.iter().map(|cells| row("td", cells)).collect();
        row("th", &self.heading) + &rows
    }

    /// The table as text; the first column stands left, the others right.
    pub fn text(&self) -> String {
        let all = || std::iter::once(&self.heading).chain(&self.rows);
        let width =
            |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..self.heading.len()).map(width).collect();
        let mut text = String::new();
        for row in all() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                if column == 0 {
                    line.push_str(&format!("{cell:<width$}"));
                } else {
                    line.push_str(&format!("  {cell:>width$}"));
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A table with its heading.
pub struct Titled {
    pub title: String,
    pub table: Table,
}

/// Tables one below the other, as text.
pub fn titled(tables: &[Titled]) -> String {
    let all: Vec<String> =
        tables.iter().map(|shown| format!("{}\n\n{}", shown.title, shown.table.text())).collect();
    all.join("\n")
}

/// Escapes what HTML means something by.
fn cell(tag: &str, text: &str) -> String {
    format!("<{tag}>{}</{tag}>", crate::report::html::escaped(text))
}

/// A number with its thousands apart.
pub fn thousands(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < -0.5 { format!("-{text}") } else { text }
}

/// A share as a percentage with one digit.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(["design", "tpmC"]);
        table.row(["no-ssd".into(), thousands(987.0)]);
        table.row(["lc".into(), thousands(12_345.4)]);
        assert_eq!(table.text(), "design    tpmC\nno-ssd     987\nlc      12,345\n");
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(thousands(1_234_567.0), "1,234,567");
        assert_eq!(thousands(-1_234.0), "-1,234");
        assert_eq!(thousands(0.2), "0");
        assert_eq!(percent(0.8349), "83.5%");
    }
}

//! Columns of text, aligned by what is seen and not by what is stored.

use anstream::adapter::strip_str;

/// Lines of cells with a head.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Begins with the names of the columns.
    pub(crate) fn new(head: &[&str]) -> Self {
        Self {
            rows: vec![
                head.iter()
                    .map(|name| super::paint(super::FAINT, name))
                    .collect(),
            ],
        }
    }

    /// Adds a line.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Renders all lines; the last column is never padded.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width: Vec<usize> = (0..columns)
            .map(|column| {
                self.rows
                    .iter()
                    .filter_map(|row| row.get(column))
                    .map(|cell| visible(cell))
                    .max()
                    .unwrap_or_default()
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                line.push_str(cell);
                if column + 1 < row.len() {
                    let gap = width[column] - visible(cell) + 2;
                    line.extend(std::iter::repeat_n(' ', gap));
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Counts the characters that are seen.
fn visible(cell: &str) -> usize {
    strip_str(cell).to_string().chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{GOOD, paint, plain};

    #[test]
    fn columns_stand_below_each_other_whatever_the_colour() {
        let mut table = Table::new(&["NAME", "STATE"]);
        table.row([paint(GOOD, "one"), "good".to_owned()]);
        table.row(["thirteen".to_owned(), String::new()]);
        insta::assert_snapshot!(plain(&table.render()), @r"
        NAME      STATE
        one       good
        thirteen
        ");
    }
}

//! Text tables: titles and cells in, aligned lines out. Must not know what a cell means.

/// To which side the cells of a column are pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows under titles.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// A title and a side per column.
    pub(super) columns: Vec<(&'static str, Side)>,
    /// What lies between the lines, in order.
    pub(super) rows: Vec<Row>,
}

/// One line of a table.
#[derive(Clone, Debug)]
pub(super) enum Row {
    /// A cell per column.
    Cells(Vec<String>),
    /// A line of its own, over all columns; it widens none.
    Heading(String),
}

impl Table {
    /// The lines: titles first, columns two spaces apart, nothing behind the last word.
    pub(super) fn lines(&self) -> Vec<String> {
        let widths = self.widths();
        let line = |cells: &[&str]| {
            let mut text = String::new();
            for ((cell, (_, side)), wide) in cells.iter().zip(&self.columns).zip(&widths) {
                let room = " ".repeat(wide - width(cell));
                match side {
                    Side::Left => text.extend([*cell, &room, "  "]),
                    Side::Right => text.extend([&room, *cell, "  "]),
                }
            }
            text.trim_end().to_owned()
        };
        let titles: Vec<&str> = self.columns.iter().map(|(title, _)| *title).collect();
        let mut lines: Vec<String> = Vec::new();
        if titles.iter().any(|title| !title.is_empty()) {
            lines.push(line(&titles));
        }
        for row in &self.rows {
            lines.push(match row {
                Row::Cells(cells) => line(&cells.iter().map(String::as_str).collect::<Vec<_>>()),
                Row::Heading(text) => text.clone(),
            });
        }
        lines
    }

    /// How wide each column is.
    pub(super) fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|(title, _)| width(title)).collect();
        for row in &self.rows {
            if let Row::Cells(cells) = row {
                for (wide, cell) in widths.iter_mut().zip(cells) {
                    *wide = (*wide).max(width(cell));
                }
            }
        }
        widths
    }
}

/// The widest line that is printed where nobody asked for more, in characters.
pub(super) const LINE: usize = 100;

/// Lines of at most `LINE` characters: broken at spaces, but never inside backticks, where a command or a name is.
/// The first begins with `first`, the others are as far in.
pub(super) fn wrapped(first: &str, text: &str) -> Vec<String> {
    let indent = " ".repeat(width(first));
    let (mut lines, mut line, mut is_quoted) = (Vec::new(), first.to_owned(), false);
    let mut word = String::new();
    for part in text.split_inclusive(' ') {
        word.push_str(part);
        is_quoted ^= part.matches('`').count() % 2 == 1;
        if is_quoted {
            continue;
        }
        if width(&line) + width(word.trim_end()) > LINE && width(&line) > width(first) {
            lines.push(line.trim_end().to_owned());
            line.clone_from(&indent);
        }
        line.push_str(&word);
        word.clear();
    }
    line.push_str(&word);
    lines.push(line.trim_end().to_owned());
    lines
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_and_words_begin_in_one_column() {
        let cells = |a: &str, b: &str| Row::Cells(vec![a.into(), b.into()]);
        let table = Table {
            columns: vec![("op", Side::Left), ("n", Side::Right)],
            rows: vec![
                cells("norm", "7"),
                Row::Heading("a heading wider than all".into()),
                cells("x", "4242"),
            ],
        };
        assert_eq!(table.lines(), ["op       n", "norm     7", "a heading wider than all", "x     4242"]);
        let bare = Table { columns: vec![("", Side::Left)], rows: vec![Row::Cells(vec!["only".into()])] };
        assert_eq!(bare.lines(), ["only"]);
    }

    #[test]
    fn long_texts_break_at_spaces_outside_backticks() {
        let text = format!("{} run `pip install {}`, or not", "a".repeat(70), "b".repeat(30));
        let lines = wrapped("  -> ", &text);
        let wanted = [
            format!("  -> {} run", "a".repeat(70)),
            format!("     `pip install {}`, or not", "b".repeat(30)),
        ];
        assert_eq!(lines, wanted);
        assert_eq!(wrapped("    ", "short"), ["    short"]);
    }
}

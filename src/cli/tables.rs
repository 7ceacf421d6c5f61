//! Tables of tiles, as flags name them: files that `tune` wrote.

use kernwright_plan::arch::Arch;
use kernwright_plan::tuning::{self, Table};
use std::path::Path;
use std::sync::Arc;

/// What `--table` was given.
pub(super) fn parse(text: &str) -> Result<Arc<Table>, String> {
    let content = std::fs::read_to_string(text).map_err(|error| format!("cannot read `{text}`: {error}"))?;
    tuning::read(text, &content).map(Arc::new).map_err(|problems| problems.join("\n"))
}

/// The table in a file that may not be there yet.
pub(super) fn read_or_new(path: &Path) -> Result<Table, String> {
    if !path.exists() {
        return Ok(Table::default());
    }
    parse(&path.display().to_string()).map(|table| Table::clone(&table))
}

/// A GPU that takes its tiles from a table first.
pub(super) fn with(arch: &Arch, table: &Arc<Table>) -> Result<Arch, String> {
    if table.arch != arch.name {
        return Err(format!(
            "the table is of `{}`, and kernels are made for `{}`: `--arch` chooses another target",
            table.arch, arch.name
        ));
    }
    Ok(Arch { tuned: Some(Arc::clone(table)), ..arch.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_plan::arch;

    #[test]
    fn a_table_is_for_one_target() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.toml");
        assert_eq!(read_or_new(&path), Ok(Table::default()));
        std::fs::write(&path, "arch = \"sm_80\"\ncard = \"A100\"\n").expect("there is room");
        let table = parse(&path.display().to_string()).expect("it is one");
        assert!(with(arch::find("sm_80").expect("a row"), &table).is_ok_and(|arch| arch.tuned.is_some()));
        let error = with(arch::find("sm_90a").expect("a row"), &table).expect_err("it is another's");
        assert!(error.contains("`sm_80`") && error.contains("`--arch`"), "{error}");
        std::fs::write(&path, "arch = 3\n").expect("there is room");
        assert!(read_or_new(&path).is_err_and(|error| error.contains(".toml:1:8: `arch` must be a GPU")));
        assert!(parse("/nonexistent").is_err_and(|error| error.starts_with("cannot read `/nonexistent`: ")));
    }
}

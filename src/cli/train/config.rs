//! `--config FILE`: the flags of `train` out of TOML.
//!
//! In: a file whose keys are the flags' names with `_` for `-`. Out: flags, and the line of each; or one line that says
//! what is wrong, where, and what is allowed. The keys, their types and their values are those that clap knows of the
//! flags. A path in the file counts from the file's folder.

use super::batch::Batch;
use super::{Arguments, Flags};
use crate::cli::shape::changed::ChangedShape;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Args, Command, FromArgMatches};
use kernwright_model::trainer::TrainError;
use std::any::TypeId;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// What a file says.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) shape: ChangedShape,
    pub(super) flags: Flags,
    path: PathBuf,
    /// Each key and its line.
    places: Vec<(String, usize)>,
}

/// What is wrong with a file, and the byte where.
type Fault = (Option<usize>, String);

impl Config {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        let shown = path.display();
        let bytes = fs::read(path).map_err(|error| format!("cannot read `{shown}`: {error}"))?;
        let parsed = match str::from_utf8(&bytes) {
            Ok(text) => Self::parse(path, text),
            Err(error) => Err((Some(error.valid_up_to()), "a configuration must be UTF-8 text".to_owned())),
        };
        parsed.map_err(|(byte, message)| match byte {
            Some(byte) => format!("{shown}:{}: {message}", line(&bytes, byte)).into(),
            None => format!("{shown}: {message}").into(),
        })
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Fault> {
        let table = DeTable::parse(text)
            .map_err(|error| (error.span().map(|span| span.start), error.message().replace('\n', ", ")))?;
        let mut entries: Vec<_> = table.get_ref().iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let (command, folder) = (keys(), path.parent().unwrap_or(Path::new("")));
        let (mut words, mut places) = (Vec::new(), Vec::new());
        for (key, value) in entries {
            let (name, at) = (key.get_ref().as_ref(), key.span().start);
            let arg = find(&command, name).ok_or_else(|| (Some(at), unknown(&command, name)))?;
            let wrong = || {
                let (allowed, found) = (allowed(arg), found(value.get_ref()));
                (Some(value.span().start), format!("`{name}` must be {allowed}, found {found}"))
            };
            for value in values_of(arg, value.get_ref(), folder).ok_or_else(wrong)? {
                let mut word = OsString::from(format!("--{}=", flag(name)));
                word.push(value);
                command.clone().try_get_matches_from([&word]).map_err(|_| wrong())?;
                words.push(word);
            }
            places.push((name.to_owned(), line(text.as_bytes(), at)));
        }
        if ["preset", "shape"].iter().all(|key| places.iter().any(|(other, _)| other == key)) {
            return Err((None, "`preset` and `shape` exclude each other: give one of them".to_owned()));
        }
        let taken = |error: clap::Error| (None, error.to_string().replace('\n', " "));
        let matches = command.try_get_matches_from(words).map_err(taken)?;
        let shape = ChangedShape::from_arg_matches(&matches).map_err(taken)?;
        let flags = Flags::from_arg_matches(&matches).map_err(taken)?;
        Ok(Self { shape, flags, path: path.to_owned(), places })
    }

    /// A flag has taken the place of a key: what is wrong with it is not the file's fault.
    pub(super) fn overridden(&mut self, key: &str) {
        self.places.retain(|(other, _)| other != key);
    }

    /// The error with file and line, where a key of the file is at fault.
    pub(super) fn locate(&self, error: TrainError) -> Box<dyn Error> {
        let TrainError::Option { name, allowed, found } = &error else { return error.into() };
        let key = name.replace('-', "_");
        match self.places.iter().find(|(other, _)| *other == key) {
            Some((_, line)) => {
                let path = self.path.display();
                format!("{path}:{line}: `{key}` must be {allowed}, found `{found}`").into()
            }
            None => error.into(),
        }
    }
}

/// The line of a byte, from 1.
fn line(text: &[u8], byte: usize) -> usize {
    1 + text.iter().take(byte).filter(|byte| **byte == b'\n').count()
}

/// A command whose flags are the keys of a file.
pub(super) fn keys() -> Command {
    let command = Command::new("config").no_binary_name(true).disable_help_flag(true);
    Flags::augment_args(ChangedShape::augment_args(command))
}

/// The name of the flag of a key.
fn flag(key: &str) -> String {
    key.replace('_', "-")
}

/// The flag of a key, which is spelt with `_`.
fn find<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    let flag = Some(flag(key)).filter(|_| !key.contains('-'));
    command.get_arguments().find(|arg| arg.get_long().is_some() && arg.get_long() == flag.as_deref())
}

fn unknown(command: &Command, key: &str) -> String {
    let flag = flag(key);
    let of_train = Arguments::augment_args(Command::new("train"));
    let is = |command: &Command| command.get_arguments().any(|arg| arg.get_long() == Some(&flag));
    if is(&of_train) && !is(command) {
        return format!("`{key}` is not a key, since it is about one call: give it as the flag `--{flag}`");
    }
    let meant = if is(command) { Some(flag) } else { suggestion(command, &flag) };
    if let Some(meant) = meant {
        return format!("`{key}` is not a key: did you mean `{}`?", meant.replace('-', "_"));
    }
    let all = command.get_arguments().filter_map(Arg::get_long);
    let all: Vec<_> = all.map(|name| format!("`{}`", name.replace('-', "_"))).collect();
    format!("`{key}` is not a key: allowed are {}", all.join(", "))
}

/// The flag that clap thinks was meant.
fn suggestion(command: &Command, flag: &str) -> Option<String> {
    let error = command.clone().try_get_matches_from([format!("--{flag}=1")]).err()?;
    match error.get(ContextKind::SuggestedArg)? {
        ContextValue::String(meant) => Some(meant.trim_start_matches('-').to_owned()),
        _ => None,
    }
}

/// May the flag be given several times? Then its key holds a list.
fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

/// The values as one would type each after the flag; none when one is of the wrong type.
fn values_of(arg: &Arg, value: &DeValue<'_>, folder: &Path) -> Option<Vec<OsString>> {
    match value {
        DeValue::Array(words) if is_list(arg) && !words.is_empty() => {
            words.iter().map(|word| word.get_ref().as_str().map(OsString::from)).collect()
        }
        value => Some(vec![value_of(arg, value, folder)?]),
    }
}

/// The value as one would type it after the flag; none when it is of the wrong type.
fn value_of(arg: &Arg, value: &DeValue<'_>, folder: &Path) -> Option<OsString> {
    let is = |id: TypeId| arg.get_value_parser().type_id() == id;
    let is_bool = is(TypeId::of::<bool>());
    let is_word = !is_bool && (is(TypeId::of::<String>()) || !arg.get_possible_values().is_empty());
    match value {
        DeValue::Boolean(value) if is_bool => Some(value.to_string().into()),
        DeValue::String(text) if is(TypeId::of::<Batch>()) => Some(text.as_ref().into()),
        // No path holds a zero byte.
        DeValue::String(text) if is(TypeId::of::<PathBuf>()) && !text.contains('\0') => {
            Some(folder.join(text.as_ref()).into())
        }
        DeValue::String(text) if is_word => Some(text.as_ref().into()),
        DeValue::Float(number) if is(TypeId::of::<f64>()) => Some(number.as_str().into()),
        DeValue::Integer(number) if !is_word && !is_bool && !is(TypeId::of::<PathBuf>()) => {
            let value = i128::from_str_radix(number.as_str(), number.radix()).ok()?;
            Some(value.to_string().into())
        }
        _ => None,
    }
}

/// What a key may hold.
fn allowed(arg: &Arg) -> String {
    let is = |id: TypeId| arg.get_value_parser().type_id() == id;
    if is(TypeId::of::<bool>()) {
        return "`true` or `false`".to_owned();
    }
    let words: Vec<_> =
        arg.get_possible_values().iter().map(|value| format!("`\"{}\"`", value.get_name())).collect();
    if !words.is_empty() {
        let list = if is_list(arg) { "a list of " } else { "" };
        return format!("{list}{}", words.join(", "));
    }
    let text = "text in quotes";
    if is(TypeId::of::<PathBuf>()) {
        return format!("a path, {text}");
    }
    if is(TypeId::of::<String>()) {
        return if is_list(arg) { format!("a list of {text}") } else { text.to_owned() };
    }
    let number = if is(TypeId::of::<f64>()) {
        "a number"
    } else if is(TypeId::of::<u32>()) {
        "a whole number from 1 to 2^32 - 1"
    } else {
        "a whole number from 0 to 2^64 - 1"
    };
    if is(TypeId::of::<Batch>()) { format!("{number}, `\"auto\"`, `\"fastest\"`") } else { number.to_owned() }
}

/// What a value is.
fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("`{:?}`", text.as_ref()),
        DeValue::Integer(number) => format!("`{number}`"),
        DeValue::Float(number) => format!("`{number}`"),
        DeValue::Boolean(value) => format!("`{value}`"),
        DeValue::Datetime(value) => format!("the date `{value}`"),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::plan_flags::PlanFlags;

    fn read(text: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        fs::write(&path, text).unwrap();
        let shown = format!("{}/", folder.path().display());
        Config::read(&path).map_err(|error| error.to_string().replace(&shown, ""))
    }

    #[test]
    fn values_are_those_of_flags() {
        let config = read(
            "preset = \"gpt2-124m\"\nlearning_rate = 1e-3\nclip = 2\nseed = 18446744073709551615\n\
             batch = 0x10\nsteps = 1_000\nschedule = \"wsd\"\ndata = \"/abs/a.txt\"",
        )
        .unwrap();
        let flags = Flags {
            learning_rate: Some(1e-3),
            clip: Some(2.0),
            seed: Some(u64::MAX),
            batch: Some(Batch::Of(16)),
            steps: Some(1000),
            schedule: Some(kernwright_model::schedule::Form::Wsd),
            data: Some("/abs/a.txt".into()),
            ..Flags::default()
        };
        assert_eq!(config.flags, flags);
        assert_eq!(config.shape.base.preset.as_deref(), Some("gpt2-124m"));
        assert_eq!(read("").unwrap().flags, Flags::default());
    }

    #[test]
    fn how_a_step_is_planned_may_be_said() {
        let config = read(
            "batch = \"auto\"\nnondeterministic = true\nattention = \"split\"\nwithout = [\"residual_in_linear\"]\n\
             head_chunk = 64",
        )
        .unwrap();
        let flags = Flags {
            batch: Some(Batch::Auto),
            plan: PlanFlags {
                nondeterministic: Some(true),
                attention: Some(crate::cli::plan_flags::Path::Split),
                without: Some(vec!["residual_in_linear".to_owned()]),
                head_chunk: Some(64),
                ..PlanFlags::default()
            },
            ..Flags::default()
        };
        assert_eq!(config.flags, flags);
    }

    #[test]
    fn fields_of_the_shape_may_be_changed() {
        let config = read("set = [\"model.layers = 3\", \"attention.pattern=[local, global]\"]").unwrap();
        assert_eq!(config.shape.set, ["model.layers = 3", "attention.pattern=[local, global]"]);
        let flags = ChangedShape { set: vec!["model.layers=4".to_owned()], ..ChangedShape::default() };
        assert_eq!(flags.clone().over(config.shape.clone()).set, flags.set);
        assert_eq!(ChangedShape::default().over(config.shape.clone()).set, config.shape.set);
    }

    #[test]
    fn a_path_counts_from_the_folder_of_the_file() {
        let config = Config::parse(Path::new("runs/a/run.toml"), "data = \"../b.txt\"").unwrap();
        assert_eq!(config.flags.data, Some("runs/a/../b.txt".into()));
        let config = Config::parse(Path::new("run.toml"), "data = \"b.txt\"").unwrap();
        assert_eq!(config.flags.data, Some("b.txt".into()));
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line_with_its_place() {
        let whole = "a whole number from 0 to 2^64 - 1";
        let cases = [
            ("steps = 3\nlerning_rate = 1", "2: `lerning_rate` is not a key: did you mean `learning_rate`?"),
            ("learning-rate = 1", "1: `learning-rate` is not a key: did you mean `learning_rate`?"),
            (
                "\n\nthreads = 2",
                "3: `threads` is not a key, since it is about one call: give it as the flag `--threads`",
            ),
            ("[train]\nsteps = 3", "1: `train` is not a key: allowed are `preset`, "),
            ("steps = \"3\"", &format!("1: `steps` must be {whole}, found `\"3\"`")),
            ("steps = 3.0", &format!("1: `steps` must be {whole}, found `3.0`")),
            ("steps = -3", &format!("1: `steps` must be {whole}, found `-3`")),
            (
                "seed = 18446744073709551616",
                &format!("1: `seed` must be {whole}, found `18446744073709551616`"),
            ),
            ("steps = true", &format!("1: `steps` must be {whole}, found `true`")),
            ("steps = [8]", &format!("1: `steps` must be {whole}, found a list")),
            ("[steps]\na = 8", &format!("1: `steps` must be {whole}, found a table")),
            (
                "batch = \"most\"",
                &format!("1: `batch` must be {whole}, `\"auto\"`, `\"fastest\"`, found `\"most\"`"),
            ),
            ("nondeterministic = 1", "1: `nondeterministic` must be `true` or `false`, found `1`"),
            (
                "nondeterministic = \"true\"",
                "1: `nondeterministic` must be `true` or `false`, found `\"true\"`",
            ),
            ("without = []", "1: `without` must be a list of `\"residual_in_linear\"`"),
            ("set = [\"model.layers\", 4]", "1: `set` must be a list of text in quotes, found a list"),
            ("set = [\"model.layers=\"]", "1: `set` must be a list of text in quotes, found a list"),
            ("without = [3]", "1: `without` must be a list of `\"residual_in_linear\"`"),
            ("attention = \"both\"", "1: `attention` must be `\"fused\"`, `\"split\"`, found `\"both\"`"),
            ("head_chunk = 0", "1: `head_chunk` must be a whole number from 1 to 2^32 - 1, found `0`"),
            ("clip = \"high\"", "1: `clip` must be a number, found `\"high\"`"),
            (r#"data = "a\u0000b""#, r#"1: `data` must be a path, text in quotes, found `"a\0b"`"#),
            ("data = 7", "1: `data` must be a path, text in quotes, found `7`"),
            (
                "schedule = \"sine\"",
                "1: `schedule` must be `\"cosine\"`, `\"linear\"`, `\"constant\"`, `\"wsd\"`, found `\"sine\"`",
            ),
            ("preset = 3", "1: `preset` must be `\""),
            ("steps = 3\n\nsteps = 4", "3: duplicate key"),
            ("steps = 3\nbatch = = 4", "2: "),
            ("steps 3", "1: "),
            ("data = \"a", "1: "),
            ("shape = \"a.toml\"\npreset = \"tiny\"", " `preset` and `shape` exclude each other"),
        ];
        for (text, message) in cases {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(&format!("run.toml:{message}")), "{text:?}: {error}");
            assert_eq!(error.lines().count(), 1, "{text:?}: {error}");
        }
    }

    #[test]
    fn a_file_that_is_no_text_is_refused_at_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        fs::write(&path, b"steps = 3\n# \xff").unwrap();
        let error = Config::read(&path).unwrap_err().to_string();
        assert!(error.ends_with("run.toml:2: a configuration must be UTF-8 text"), "{error}");
        assert!(Config::read(folder.path()).unwrap_err().to_string().starts_with("cannot read `"));
    }
}

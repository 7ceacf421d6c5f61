//! `new`: a crate of the user's own, with a model and a whole command line for it.
//!
//! In: a name and a Shape. Out: a folder that builds and trains as it is, and what to do next. What is a good name is
//! `crate_name`'s, what is written `files`'.

mod crate_name;
mod files;

use super::obstacle::cannot_create;
use super::shape::{Named, ShapeArguments};
use super::{Declared, Outcome, shell, units};
use crate::environment::Environment;
use crate::terminal::line;
use clap::Args;
use files::Dependency;
use kernwright_plan::gpu::Gpu;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

/// Flags of `new`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kernwright new my-model
  kernwright new my-llama --preset llama-1b --gpu rtx-4090
  kernwright new my-model --shape mine.toml --path models/first")]
pub(super) struct Arguments {
    /// Name of the crate; its struct is called `MyModel` for `my-model`
    #[arg(value_name = "NAME", value_parser = crate_name::parse)]
    name: String,
    #[command(flatten)]
    shape: ShapeArguments,
    /// Folder to create, or an empty one [default: the name]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// GPUs to generate for, between commas or repeated [default: those of the shape, else all]
    #[arg(long, value_name = "GPU", value_delimiter = ',', value_parser = super::gpu::parse,
        long_help = super::gpu::list("GPUs to generate for, between commas or repeated [default: those of the shape, else all]"))]
    gpu: Vec<Gpu>,
    /// Add a build script, which compiles the kernels ahead of time where NVRTC is found
    #[arg(long)]
    build_script: bool,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments, declared: Option<Declared>, _environment: &Environment) -> Outcome {
    let named = arguments.shape.resolve(declared)?;
    let mut model = Named { name: arguments.name.clone(), ..named };
    if !arguments.gpu.is_empty() {
        model.shape.targets = arguments.gpu.iter().map(|gpu| gpu.arch.clone()).collect();
    }
    let folder = arguments.path.clone().unwrap_or_else(|| PathBuf::from(&arguments.name));
    make_folder(&folder)?;
    let dependency = dependency(&folder)?;
    let project = files::Project {
        name: &arguments.name,
        model: &model,
        dependency: &dependency,
        is_below_another: is_below_another(&folder)?,
        build_script: arguments.build_script,
    };
    for (name, text) in project.files()? {
        let path = folder.join(name);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
        written.map_err(|error| format!("cannot write `{}`: {error}", path.display()))?;
    }
    let struct_name = super::shape::show::struct_name(&model.name);
    let parameters = units::grouped(model.shape.n_parameters());
    line(&format!("created `{}`: `{struct_name}`, {parameters} parameters\n", folder.display()))?;
    line(&format!("    cd {}\n{}", shell::path(&folder), project.commands("    ")))?;
    Ok(ExitCode::SUCCESS)
}

/// A folder with nothing in it.
fn make_folder(folder: &Path) -> Result<(), String> {
    let shown = folder.display();
    match fs::read_dir(folder).map(|mut entries| entries.next().is_none()) {
        Ok(true) => return Ok(()),
        Ok(false) => return Err(format!("`{shown}` is not empty: name another folder with `--path`")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(cannot_create(folder, &error)),
    }
    fs::create_dir_all(folder).map_err(|error| cannot_create(folder, &error))
}

/// Where the new crate finds this one: in the checkout that the user or the folder is in, else where this program was
/// built from if that is still there, else in the registry.
fn dependency(folder: &Path) -> Result<Dependency, Box<dyn Error>> {
    let folder = std::path::absolute(folder)?;
    let current = std::env::current_dir()?;
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_from_registry = built_from.components().any(|part| part.as_os_str() == "registry");
    let places = current.ancestors().chain(folder.ancestors());
    let places = places.chain(Some(built_from).filter(|_| !is_from_registry));
    for place in places {
        if !is_source(place) {
            continue;
        }
        let place = fs::canonicalize(place)?;
        let path = place.to_str().ok_or_else(|| format!("`{}` is not UTF-8", place.display()))?;
        return Ok(Dependency::Path(path.to_owned()));
    }
    Ok(Dependency::Version(env!("CARGO_PKG_VERSION")))
}

/// Does this package's source lie there?
fn is_source(folder: &Path) -> bool {
    let name = concat!("\nname = \"", env!("CARGO_PKG_NAME"), "\"\n");
    fs::read_to_string(folder.join("Cargo.toml"))
        .is_ok_and(|text| text.contains("[package]") && text.contains(name))
}

/// Would cargo take it for a part of another package?
fn is_below_another(folder: &Path) -> io::Result<bool> {
    let folder = std::path::absolute(folder)?;
    Ok(folder.ancestors().skip(1).any(|above| above.join("Cargo.toml").exists()))
}

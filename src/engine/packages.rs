//! The Python packages beside an engine.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Versions of packages by name.
pub(crate) type Packages = BTreeMap<String, String>;

/// Longest first line of a script that is read.
const MAX_FIRST_LINE: u64 = 4096;

/// The folder of the Python environment whose interpreter the first line of a script names; `None` for other programs.
pub(super) fn environment_of_script(program: &Path) -> Option<PathBuf> {
    let file = fs::File::open(program).ok()?;
    let mut line = String::new();
    BufReader::new(file.take(MAX_FIRST_LINE))
        .read_line(&mut line)
        .ok()?;
    let interpreter = Path::new(line.strip_prefix("#!")?.split_whitespace().next()?);
    let is_python = interpreter.file_name()?.to_str()?.starts_with("python");
    is_python.then(|| interpreter.parent()?.parent().map(Path::to_owned))?
}

/// The packages of an environment, by the names of their metadata folders (`NAME-VERSION.dist-info`).
///
/// # Errors
/// The environment has no folder of packages.
pub(super) fn packages_of(environment: &Path) -> Result<Packages, String> {
    let lib = environment.join("lib");
    let entries = fs::read_dir(&lib).map_err(|error| format!("{}: {error}", lib.display()))?;
    let sites = entries
        .flatten()
        .map(|entry| entry.path().join("site-packages"))
        .filter(|site| site.is_dir());
    let mut packages = Packages::new();
    for site in sites {
        let names = fs::read_dir(&site).map_err(|error| format!("{}: {error}", site.display()))?;
        let names = names
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned());
        packages.extend(names.filter_map(|name| {
            let (package, version) = name.strip_suffix(".dist-info")?.split_once('-')?;
            Some((normalized(package), version.to_owned()))
        }));
    }
    match packages.is_empty() {
        true => Err(format!("{} has no packages", environment.display())),
        false => Ok(packages),
    }
}

/// The Python program that prints the packages of its environment, a line `NAME==VERSION` each.
pub(super) const LIST_PACKAGES: &str = "import importlib.metadata as m\nfor d in m.distributions(): print('%s==%s' % (d.metadata['Name'], d.version))";

/// Reads what [`LIST_PACKAGES`] prints.
///
/// # Errors
/// It names no package.
pub(super) fn parse_packages(text: &str) -> Result<Packages, String> {
    let lines = text.lines().filter_map(|line| line.trim().split_once("=="));
    let packages: Packages = lines
        .map(|(name, version)| (normalized(name), version.to_owned()))
        .collect();
    match packages.is_empty() {
        true => Err("the engine's Python lists no packages".to_owned()),
        false => Ok(packages),
    }
}

/// The name as the package index normalises it.
fn normalized(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '.'], "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_those_of_the_environment_of_a_script() {
        let root = tempfile::tempdir().unwrap();
        let site = root.path().join("lib/python3.11/site-packages");
        fs::create_dir_all(site.join("Flash_Attn-2.8.1+cu12.dist-info")).unwrap();
        fs::create_dir_all(site.join("flash_attn")).unwrap();
        fs::create_dir_all(root.path().join("bin")).unwrap();
        let script = root.path().join("bin/vllm");
        fs::write(
            &script,
            format!("#!{}/bin/python3.11\nimport x\n", root.path().display()),
        )
        .unwrap();
        let environment = environment_of_script(&script).unwrap();
        assert_eq!(environment, root.path());
        let packages = packages_of(&environment).unwrap();
        assert_eq!(packages, parse_packages("x\nflash.attn==2.8.1+cu12\n").unwrap());
        fs::write(&script, "\u{7f}ELF").unwrap();
        assert_eq!(environment_of_script(&script), None);
        assert!(packages_of(&root.path().join("bin")).is_err());
        assert!(parse_packages("none\n").is_err());
    }
}

//! Finds files that the Hugging Face tools downloaded earlier. It downloads nothing and reads no environment
//! variables.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders that may hold files of earlier downloads and runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caches {
    /// The Hugging Face home, usually `~/.cache/huggingface` or `HF_HOME`. Its `hub` folder is searched.
    pub hf_home: Option<PathBuf>,
    /// The folder of cached prompts; without it prompts are prepared each time.
    pub prompts: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repository {
    Model,
    Dataset,
}

impl Caches {
    /// Returns the file of a repository's `main` revision, if it was downloaded. Adds every searched place to
    /// `searched`.
    pub(super) fn find(
        &self,
        kind: Repository,
        id: &str,
        file: &str,
        searched: &mut Vec<String>,
    ) -> Option<PathBuf> {
        let Some(home) = &self.hf_home else {
            searched.push("the Hugging Face cache (not searched, because its folder is unknown)".to_owned());
            return None;
        };
        let folder = match kind {
            Repository::Model => "models",
            Repository::Dataset => "datasets",
        };
        let repository = home
            .join("hub")
            .join(format!("{folder}--{}", id.replace('/', "--")));
        let snapshots = repository.join("snapshots");
        if let Ok(revision) = fs::read_to_string(repository.join("refs").join("main")) {
            let path = snapshots.join(revision.trim()).join(file);
            let is_found = path.is_file();
            searched.push(path.display().to_string());
            return is_found.then_some(path);
        }
        let mut having = snapshots_with(&snapshots, file);
        let pattern = snapshots.join("*").join(file);
        match having.len() {
            0 => searched.push(pattern.display().to_string()),
            1 => return having.pop(),
            several => searched.push(format!(
                "{} ({several} revisions have this file, but it is unknown which one is `main`; name the path of one of these files)",
                pattern.display()
            )),
        }
        None
    }
}

/// Returns the file in every snapshot that has it.
fn snapshots_with(snapshots: &Path, file: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(snapshots) else {
        return Vec::new();
    };
    entries
        .flatten()
        .map(|entry| entry.path().join(file))
        .filter(|path| path.is_file())
        .collect()
}

/// Formats the searched places for an error message, one per line.
pub(super) fn path_lines(searched: &[String]) -> String {
    searched.iter().map(|place| format!("\n  {place}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a cache with the given revisions of `a/b`, each with a `file.json`.
    fn cache(revisions: &[&str], main: Option<&str>) -> (tempfile::TempDir, Caches) {
        let home = tempfile::tempdir().unwrap();
        let repository = home.path().join("hub/models--a--b");
        for revision in revisions {
            let snapshot = repository.join("snapshots").join(revision);
            fs::create_dir_all(&snapshot).unwrap();
            fs::write(snapshot.join("file.json"), revision).unwrap();
        }
        if let Some(main) = main {
            fs::create_dir_all(repository.join("refs")).unwrap();
            fs::write(repository.join("refs/main"), format!("{main}\n")).unwrap();
        }
        let caches = Caches {
            hf_home: Some(home.path().to_owned()),
            prompts: None,
        };
        (home, caches)
    }

    fn find(caches: &Caches) -> (Option<String>, Vec<String>) {
        let mut searched = Vec::new();
        let path = caches.find(Repository::Model, "a/b", "file.json", &mut searched);
        (path.map(|path| fs::read_to_string(path).unwrap()), searched)
    }

    #[test]
    fn the_main_revision_is_taken() {
        let (_home, caches) = cache(&["one", "two"], Some("two"));
        assert_eq!(find(&caches).0.as_deref(), Some("two"));
    }

    #[test]
    fn an_older_revision_does_not_stand_in_for_main() {
        let (_home, caches) = cache(&["one"], Some("two"));
        let (path, searched) = find(&caches);
        assert_eq!(path, None);
        assert!(searched[0].ends_with("snapshots/two/file.json"), "{searched:?}");
    }

    #[test]
    fn without_main_a_single_revision_is_taken_and_several_are_not() {
        let (_home, caches) = cache(&["one"], None);
        assert_eq!(find(&caches).0.as_deref(), Some("one"));
        let (_home, caches) = cache(&["one", "two"], None);
        let (path, searched) = find(&caches);
        assert_eq!(path, None);
        assert!(searched[0].contains("2 revisions have this file"), "{searched:?}");
    }

    #[test]
    fn without_a_cache_the_message_says_so() {
        assert_eq!(
            find(&Caches::default()).1,
            ["the Hugging Face cache (not searched, because its folder is unknown)"]
        );
    }
}

//! The folders of jobs that each measure one start of a run: `starts/0001` and so on below the folder of their submission.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::folder::{JobFolder, recorded_run, write_whole};
use crate::base::clock;
use crate::plan::Plan;
use crate::plan::job::files;

/// Creates the folder of the job that measures this part of the plan.
pub(super) fn create(submission: &JobFolder, number: usize, part: &Plan) -> io::Result<JobFolder> {
    let path = submission.path.join(files::STARTS).join(format!("{number:04}"));
    fs::create_dir_all(&path)?;
    let text = serde_json::to_string(part).map_err(io::Error::other)?;
    write_whole(&path.join(files::PART), &text)?;
    Ok(JobFolder { path })
}

/// The part of the plan that the job in this folder measures; `None` if it measures the whole run.
pub(crate) fn part_of(folder: &Path) -> Option<io::Result<Plan>> {
    let text = match fs::read(folder.join(files::PART)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(Err(error)),
        Ok(text) => text,
    };
    Some(serde_json::from_slice(&text).map_err(io::Error::other))
}

/// The folder of the run of a part, once it has begun.
pub(super) fn part_run(folder: &JobFolder) -> Option<PathBuf> {
    let run = folder.path.join(files::RESULTS).join(recorded_run(&folder.path)?);
    run.is_dir().then_some(run)
}

/// The folders below that of a submission whose jobs are not marked as over, in the order of submission.
pub(super) fn unmerged(submission: &JobFolder) -> Vec<JobFolder> {
    let entries = fs::read_dir(submission.path.join(files::STARTS));
    let mut paths: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join(files::PART).exists() && !is_given_up(path))
        .collect();
    paths.sort();
    paths.into_iter().map(|path| JobFolder { path }).collect()
}

/// Marks a job as over. If it is started again, it measures nothing, because its start may have been given to another job.
pub(super) fn mark_merged(folder: &JobFolder) -> io::Result<()> {
    write_whole(
        &folder.path.join(files::MERGED),
        &format!("{}\n", clock::timestamp()),
    )
}

/// Whether the job in this folder is marked as over.
pub(crate) fn is_given_up(folder: &Path) -> bool {
    folder.join(files::MERGED).exists()
}

/// Has the command that submits the job in this folder submit no more. The folder may be that of a job for a whole run.
pub(super) fn stop_submitting(folder: &Path) {
    if let Some(starts) = folder.parent()
        && starts.file_name().is_some_and(|name| name == files::STARTS)
        && let Some(submission) = starts.parent()
    {
        // If this fails, that command goes on to submit, and the user cancels again.
        let _ = fs::write(submission.join(files::STOPPED), "");
    }
}

/// Whether no more jobs of this submission are wanted.
pub(super) fn is_stopped(submission: &JobFolder) -> bool {
    submission.path.join(files::STOPPED).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::cluster::JobPer;
    use crate::results::store::testing;
    use crate::runner::job::command::JobCommand;

    #[test]
    fn jobs_of_starts_are_listed_until_they_are_marked_and_stop_with_their_submission() {
        let results = tempfile::tempdir().unwrap();
        let submission = JobFolder::create(results.path(), "m", JobCommand::Run, JobPer::Launch).unwrap();
        let plan = testing::plan();
        let part = plan.part(&plan.starts[0]);
        let folders: Vec<JobFolder> = (1..=3).map(|n| create(&submission, n, &part).unwrap()).collect();
        assert_eq!(part_of(&folders[0].path).unwrap().unwrap(), part);
        assert!(part_of(&submission.path).is_none());
        mark_merged(&folders[1]).unwrap();
        let open: Vec<PathBuf> = unmerged(&submission)
            .into_iter()
            .map(|folder| folder.path)
            .collect();
        assert_eq!(open, [folders[0].path.clone(), folders[2].path.clone()]);
        stop_submitting(&submission.path);
        assert!(!is_stopped(&submission));
        stop_submitting(&folders[0].path);
        assert!(is_stopped(&submission));
    }
}

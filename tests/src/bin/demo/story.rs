//! What happens when: jobs arrive as in the log, the server is killed in the middle, and all of them end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rms_tests::apps::{self, Mpi};
use tokio::process::Child;
use tokio::time::{Instant, sleep, sleep_until};

use crate::limber::{self, Limber};
use crate::report::{Closed, Fared};
use crate::screen::Screen;
use crate::workload::{Planned, Work};

/// The programs of one MPI.
pub struct Programs {
    pub mpi: Mpi,
    pub nbody: PathBuf,
    pub mpirun: PathBuf,
}

/// One telling of it.
pub struct Story<'a> {
    limber: &'a Limber,
    home: &'a Path,
    programs: Vec<Programs>,
    jobs: Vec<Planned>,
    screen: Screen,
    n_submitted: usize,
    most_waiting: usize,
    /// Clients that wait for the ranks they started.
    runs: Vec<(String, Child)>,
}

/// After this, something hangs.
const PATIENCE: Duration = Duration::from_secs(170);
/// How long the server stays dead.
const OUTAGE: Duration = Duration::from_millis(1500);

impl<'a> Story<'a> {
    pub fn new(limber: &'a Limber, home: &'a Path, programs: Vec<Programs>, jobs: Vec<Planned>) -> Story<'a> {
        Story { limber, home, programs, jobs, screen: Screen::new(), n_submitted: 0, most_waiting: 0, runs: Vec::new() }
    }

    /// Tells it; every job with what came of it.
    pub async fn tell(&mut self) -> Result<Vec<Closed>> {
        match tokio::time::timeout(PATIENCE, self.submit_and_watch()).await {
            Ok(outcome) => outcome?,
            Err(_) => bail!("the queue did not drain within {} s", PATIENCE.as_secs()),
        }
        for (name, mut run) in std::mem::take(&mut self.runs) {
            let status = run.wait().await.with_context(|| format!("{name}: `rms run` is gone"))?;
            if !status.success() {
                self.screen.say(&format!("{name}: `rms run` ended with {status}: {}", self.output_of(&name).trim()));
            }
        }
        let history = self.limber.history().await?;
        Ok(self.jobs.iter().map(|job| self.close(job, &history)).collect())
    }

    async fn submit_and_watch(&mut self) -> Result<()> {
        let begun = Instant::now();
        let middle = self.jobs.len() / 2;
        let mut late = Duration::ZERO;
        let mut changes = self.limber.changes()?;
        loop {
            let next = self.jobs.get(self.n_submitted).cloned();
            let due = begun + late + next.as_ref().map_or(Duration::ZERO, |job| job.arrives);
            tokio::select! {
                () = sleep_until(due), if next.is_some() => {
                    if let Some(job) = next {
                        self.submit(&job).await?;
                    }
                    if self.n_submitted == middle {
                        let killed = Instant::now();
                        self.kill_and_restart().await?;
                        late += killed.elapsed();
                        changes = self.limber.changes()?;
                    }
                }
                jobs = changes.next() => {
                    let Some(jobs) = jobs else {
                        // Only a server that is gone ends the watch; ask again, but not in a tight loop.
                        sleep(Duration::from_millis(300)).await;
                        changes = self.limber.changes()?;
                        continue;
                    };
                    let has_drained = jobs.is_empty() && self.n_submitted == self.jobs.len();
                    if self.screen.is_due() || has_drained {
                        let view = self.limber.view().await?;
                        let n_waiting = self.screen.frame(self.jobs.len(), self.n_submitted, &jobs, &view);
                        self.draw(n_waiting).await?;
                    }
                    if has_drained {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Keeps a picture of the moment when most jobs waited.
    async fn draw(&mut self, n_waiting: usize) -> Result<()> {
        if n_waiting > self.most_waiting {
            self.most_waiting = n_waiting;
            self.limber.draw(&picture()?).await?;
        }
        Ok(())
    }

    async fn submit(&mut self, job: &Planned) -> Result<()> {
        let output = self.output_path(&job.name);
        match (job.work, self.programs_for(job.work)) {
            (Work::Direct(_), Some(programs)) => {
                let program = limber::nbody(job, &programs.nbody)?;
                self.runs.push((job.name.clone(), self.limber.run(job, &program, &output)?));
            }
            (Work::Sleep { .. } | Work::Mpirun(_) | Work::Direct(_), programs) => {
                let none = Path::new("");
                let (mpirun, nbody) = programs.map_or((none, none), |programs| (&programs.mpirun, &programs.nbody));
                let script = self.home.join(format!("{}.sh", job.name));
                let text = limber::script(job, mpirun, nbody)?;
                std::fs::write(&script, text).with_context(|| format!("cannot write {}", script.display()))?;
                self.limber.submit(job, &script, &output).await?;
            }
        }
        self.n_submitted += 1;
        Ok(())
    }

    async fn kill_and_restart(&mut self) -> Result<()> {
        let pid = self.limber.kill_server()?;
        self.screen.say(&format!("the server (process {pid}) is killed with -9; jobs run on without it"));
        sleep(OUTAGE).await;
        let begun = Instant::now();
        self.limber.up().await.context("the server does not come back")?;
        let text = format!("the server is back after {:.0} ms and knows its jobs", begun.elapsed().as_secs_f64() * 1e3);
        self.screen.say(&text);
        Ok(())
    }

    fn programs_for(&self, work: Work) -> Option<&Programs> {
        match work {
            Work::Sleep { .. } => None,
            Work::Mpirun(mpi) | Work::Direct(mpi) => self.programs.iter().find(|programs| programs.mpi == mpi),
        }
    }

    fn close(&self, job: &Planned, history: &[Fared]) -> Closed {
        let fared = history.iter().find(|fared| fared.name == job.name).cloned();
        let checksum = self.output_of(&job.name).split_once("checksum=").map(|(_, rest)| rest.trim().to_owned());
        Closed { planned: job.clone(), fared, checksum }
    }

    fn output_path(&self, name: &str) -> PathBuf {
        self.home.join(format!("{name}.out"))
    }

    /// A job that printed nothing has no file.
    fn output_of(&self, name: &str) -> String {
        std::fs::read_to_string(self.output_path(name)).unwrap_or_default()
    }

    /// What the programs logged last, for whoever has to find out why it failed.
    pub fn show_logs(&self) {
        for path in logs_below(&self.home.join("up")) {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let tail = &lines[lines.len().saturating_sub(10)..];
            eprintln!("-- {}\n{}", path.display(), tail.join("\n"));
        }
    }
}

/// Where the picture of the demonstration is left.
pub fn picture() -> Result<PathBuf> {
    Ok(apps::target()?.join("demo.svg"))
}

fn logs_below(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let (dirs, files): (Vec<PathBuf>, Vec<PathBuf>) = paths.partition(|path| path.is_dir());
    let own = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    own.chain(dirs.iter().flat_map(|dir| logs_below(dir))).collect()
}

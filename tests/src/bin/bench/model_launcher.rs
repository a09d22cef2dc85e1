//! A model launcher as a process of its own: the SDK's session and scheduling functions, in scaled time, and nothing run.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use experiments::delegated::{self, Application, Mix, Model, Platform};
use launcher_sdk::launcher::{Event, Session, Subscription, Tag, Traffic};
use launcher_sdk::schedule::{Proposal, Sight, cem, moldable};
use launcher_sdk::{CallError, Client};
use nix::time::{ClockId, clock_gettime};
use rms_model::{ClusterId, Profile, Request, Span, Time};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

/// The first argument that makes this program a launcher.
pub const WORD: &str = "model-launcher";

/// The clusters of 001's Figure 12.
pub const PLATFORM: Platform = Platform { n_clusters: 8 };

/// W2 of jobs that take at most 7200 processor seconds.
pub fn applications(p_cem: f64) -> Vec<Application> {
    delegated::applications(&delegated::small_jobs().jobs, Mix::small_w2(p_cem), PLATFORM, SEED)
}

const SEED: u64 = 1;

/// The life of such a process: `CLIENT-DIR P-CEM NUMBER SCALE`. It says `r` when it is connected, waits for a line, which
/// starts the experiment's clock, and at the end prints the bytes it sent and received, its CPU time in microseconds until
/// that line and from there on, and whether the application was ended at its wall time, which live delays can make too short.
pub fn live(args: &[String]) -> Result<()> {
    let [dir, p_cem, number, scale] = args else { bail!("usage: bench {WORD} CLIENT-DIR P-CEM NUMBER SCALE") };
    let (p_cem, number, scale) = (p_cem.parse::<f64>()?, number.parse::<usize>()?, scale.parse::<i64>()?);
    let applications = applications(p_cem);
    let application = applications.get(number).context("there is no application of this number")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let lived = runtime.block_on(async {
        let client = Client::connect(Path::new(dir)).await?;
        print!("r");
        std::io::Write::flush(&mut std::io::stdout())?;
        let mut stdin = BufReader::new(tokio::io::stdin());
        let mut line = String::new();
        stdin.read_line(&mut line).await?;
        let cpu = || clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from);
        let start = cpu()?;
        tokio::time::sleep(scaled(application.arrival.since(Time::EPOCH), scale)).await;
        let session = Session::subscribe(&client, Subscription::named("model")).await?;
        let (spent, is_late) = tokio::select! {
            lived = (Launcher { application, scale, session, sent: None, tag: Tag(0) }).live() => lived?,
            // Whoever started us is gone.
            _ = async { stdin.read_u8().await } => bail!("nobody waits for this launcher"),
        };
        let after = cpu()? - start;
        let micros = [start, after].map(|cpu| cpu.as_micros());
        println!(" {} {} {} {} {}", spent.sent, spent.received, micros[0], micros[1], u8::from(is_late));
        Ok(())
    });
    // A thread still waits for input that nobody wants any more.
    runtime.shutdown_background();
    lived
}

struct Launcher<'a> {
    application: &'a Application,
    /// How many times faster than the applications' own time runs.
    scale: i64,
    session: Session,
    sent: Option<Request>,
    tag: Tag,
}

impl Launcher<'_> {
    /// What went over the session, and whether the wall time was over before the application was.
    async fn live(mut self) -> Result<(Traffic, bool)> {
        let mut is_late = false;
        while let Some(event) = self.session.next().await? {
            match event {
                Event::View { asks_clusters: _ } => self.choose().await?,
                Event::Started(grant) => {
                    let accepted = self.session.accept(grant.tag).await;
                    let wall = Span::from_millis(grant.request.wall.as_millis() * self.scale);
                    tokio::time::sleep(scaled(self.application.execution.of(wall), self.scale)).await;
                    let finished = self.session.finish(grant.tag, 0).await;
                    if accepted.and(finished).is_err() {
                        is_late = true;
                        break;
                    }
                }
                Event::Ended(outcome) => match outcome {
                    rms_model::Outcome::Completed => {}
                    rms_model::Outcome::WallTime => is_late = true,
                    other => bail!("the application {other}"),
                },
                Event::Replaced => bail!("another launcher serves the application"),
            }
        }
        Ok((self.session.traffic(), is_late))
    }

    async fn choose(&mut self) -> Result<()> {
        let Some(proposal) = self.propose() else { return Ok(()) };
        let wall = Span::from_millis(proposal.request.wall.as_millis().div_euclid(self.scale).max(1));
        let request = Request { wall, ..proposal.request };
        if self.sent.as_ref() == Some(&request) {
            return Ok(());
        }
        self.sent = Some(request.clone());
        self.tag = Tag(self.tag.0 + 1);
        match self.session.request(self.tag, request).await {
            Ok(()) => Ok(()),
            // Its start is on its way, which is what it was told next.
            Err(CallError::Refused(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// In the applications' own time, which begins now.
    fn propose(&self) -> Option<Proposal> {
        let now = self.session.now();
        let view = self.session.view();
        let slowed = |(cluster, n_nodes): (&ClusterId, &u32)| {
            let pairs = view.occupied.get(cluster).map(|occupied| occupied.pairs_from(now)).unwrap_or_default();
            let slow = |(span, nodes): (Span, i64)| (Span::from_millis(span.as_millis() * self.scale), nodes);
            (*cluster, *n_nodes, Profile::from_pairs(Time::EPOCH, pairs.into_iter().map(slow)))
        };
        let clusters: Vec<(ClusterId, u32, Profile)> = view.capacity.iter().map(slowed).collect();
        let sight = Sight::of(clusters.iter().map(|(cluster, n_nodes, occupied)| (*cluster, *n_nodes, occupied)));
        match &self.application.model {
            Model::OnOne { sizes, amdahl } => moldable::propose(&sight, Time::EPOCH, *sizes, amdahl),
            complex @ (Model::Iterative(_) | Model::FastestFirst(_)) => {
                cem::propose(&sight, Time::EPOCH, |available| complex.select(available))
            }
        }
    }
}

fn scaled(span: Span, scale: i64) -> Duration {
    Duration::from_micros((span.as_millis().max(0) * 1000 / scale) as u64)
}

//! Tests of job keys without a server: what is requested when, and what is in the spool afterwards.

use std::os::unix::fs::PermissionsExt as _;

use rms_model::{Identity, Span};
use rms_wire::Authority;
use rms_wire::tls::draw_serial;

use super::*;

const JOB: JobId = JobId(7);
const RUN: Run = Run(2);

/// A node and the CA of its server.
struct Scene {
    dir: tempfile::TempDir,
    authority: Authority,
    keys: Keys,
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::tempdir().expect("a directory");
        let authority = Authority::create(&dir.path().join("ca"), "d1", now()).expect("a new authority");
        let keys = Keys::new(KeyDirs::create(&dir.path().join("keys")).expect("made"));
        Scene { dir, authority, keys }
    }

    fn owner(&self) -> Owner {
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).expect("a look-up");
        Owner(user.map_or_else(|| nix::unistd::geteuid().to_string(), |user| user.name))
    }

    fn want(&self) {
        self.keys.want(JOB, RUN, &self.owner());
    }

    fn certify(&self, request: &Request, life: Span) {
        let identity = Identity::of_job(request.job, request.run);
        let (from, until) = (now() - Span::from_secs(1), now() + life);
        let chain = self.authority.sign(&request.csr, &identity, &draw_serial(), from, until).expect("a certificate");
        self.keys.certified(request.seq, &chain, self.authority.ca_pem());
    }

    fn forget(&self) {
        if self.keys.forget(JOB, RUN) {
            self.keys.remove(JOB, RUN);
        }
    }

    /// Waits for the thread that writes the files.
    async fn placed(&self) -> Credentials {
        loop {
            if let Ok(credentials) = Credentials::load(&self.keys.dir(JOB, RUN)) {
                return credentials;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn entries(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path().join("keys")).expect("there");
        entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect()
    }
}

#[tokio::test]
async fn a_key_is_placed_for_the_jobs_user_alone_and_goes_with_the_job() {
    let scene = Scene::new();
    scene.want();
    let request = scene.keys.next_request().await;
    assert_eq!((request.job, request.run), (JOB, RUN));
    scene.certify(&request, Span::from_hours(1));
    let credentials = scene.placed().await;
    assert_eq!(credentials.identity(), &Identity::of_job(JOB, RUN));
    let mode = |path: PathBuf| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    let dir = scene.keys.dir(JOB, RUN);
    assert_eq!(mode(dir.clone()), 0o700);
    for file in ["key.pem", "cert.pem", "ca.pem"] {
        assert_eq!(mode(dir.join(file)), 0o600, "{file}");
    }
    scene.forget();
    assert_eq!(scene.entries(), Vec::<String>::new());
}

#[tokio::test]
async fn it_is_renewed_long_before_it_expires_and_never_missing() {
    let scene = Scene::new();
    scene.want();
    let request = scene.keys.next_request().await;
    scene.certify(&request, Span::from_secs(3));
    let first = scene.placed().await;
    let request = tokio::time::timeout(Duration::from_secs(3), scene.keys.next_request()).await.expect("in time");
    assert!(now() < first.expires(), "a third of its life is left");
    scene.certify(&request, Span::from_hours(1));
    while scene.placed().await.serial() == first.serial() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let later = tokio::time::timeout(Duration::from_millis(50), scene.keys.next_request()).await;
    assert!(later.is_err(), "the next one is good for an hour");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_or_says_no_is_asked_again() {
    let scene = Scene::new();
    scene.want();
    let lost = scene.keys.next_request().await;
    scene.keys.link_up();
    let again = scene.keys.next_request().await;
    assert!(again.seq > lost.seq);
    // An answer to a request of the previous connection is ignored.
    scene.certify(&lost, Span::from_hours(1));
    assert_eq!(scene.entries(), Vec::<String>::new());
    scene.keys.not_certified(again.seq, &Refused::new("busy", "later"));
    let begun = Instant::now();
    let third = scene.keys.next_request().await;
    assert!(begun.elapsed() >= Duration::from_millis(100), "not at once");
    scene.keys.not_certified(third.seq, &Refused::new("not_running", "no"));
    scene.forget();
    let nothing = tokio::time::timeout(Duration::from_secs(3600), scene.keys.next_request()).await;
    assert!(nothing.is_err(), "an execution that has ended needs none");
}

#[tokio::test]
async fn an_agent_that_is_restarted_places_them_anew_and_clears_away_the_rest() {
    let scene = Scene::new();
    scene.want();
    let request = scene.keys.next_request().await;
    scene.certify(&request, Span::from_hours(1));
    let first = scene.placed().await;
    std::fs::create_dir(scene.dir.path().join("keys/9.1")).expect("of a job that has ended");
    std::fs::create_dir(scene.dir.path().join("keys/.new-9.1")).expect("cut short");
    let keys = Keys::new(KeyDirs::create(&scene.dir.path().join("keys")).expect("there"));
    let scene = Scene { keys, ..scene };
    scene.want();
    scene.keys.clear();
    assert_eq!(scene.entries(), ["7.2"]);
    assert_eq!(scene.placed().await.serial(), first.serial(), "what is there serves on");
    let request = scene.keys.next_request().await;
    scene.certify(&request, Span::from_hours(1));
    while scene.placed().await.serial() == first.serial() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_job_that_ends_while_its_key_is_written_leaves_none() {
    let scene = Scene::new();
    for _ in 0..20 {
        scene.want();
        let request = scene.keys.next_request().await;
        scene.certify(&request, Span::from_hours(1));
        scene.forget();
    }
    let until = Instant::now() + Duration::from_secs(10);
    while !scene.entries().is_empty() {
        assert!(Instant::now() < until, "{:?}", scene.entries());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

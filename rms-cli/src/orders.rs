//! Orders that are on their way to the server, one behind the other, while all else goes on.

use std::collections::VecDeque;
use std::pin::Pin;

use launcher_sdk::Client;
use rms_api::Call;

use crate::failure::Failure;

/// What goes on beside all else.
pub type Underway<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Somebody at a keyboard gives them, so there are few.
pub struct Orders {
    client: Client,
    waiting: VecDeque<Call>,
    going: Option<Underway<Result<(), Failure>>>,
}

impl Orders {
    pub fn new(client: Client) -> Orders {
        Orders { client, waiting: VecDeque::new(), going: None }
    }

    /// Behind those that are on their way.
    pub fn send(&mut self, call: Call) {
        self.waiting.push_back(call);
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.going.is_none()
    }

    /// When the next one has arrived. Whoever stops to wait loses none.
    ///
    /// # Errors
    /// The server cannot be told. What it refuses is as good as done: the job has just ended.
    pub async fn next(&mut self) -> Result<(), Failure> {
        if self.going.is_none() {
            let Some(call) = self.waiting.pop_front() else { return Ok(()) };
            let client = self.client.clone();
            self.going = Some(Box::pin(async move { Ok(client.order(call).await.map(drop)?) }));
        }
        let done = match &mut self.going {
            Some(going) => going.await,
            None => Ok(()),
        };
        self.going = None;
        done
    }
}

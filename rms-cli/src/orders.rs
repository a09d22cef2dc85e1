//! Sends orders to the server one after the other, concurrently with all other work.

use std::collections::VecDeque;
use std::pin::Pin;

use launcher_sdk::Client;
use rms_api::Call;

use crate::failure::Failure;

/// A future that runs concurrently with all other work.
pub type Underway<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The queue of orders. They come from a person at a keyboard, so there are few.
pub struct Orders {
    client: Client,
    waiting: VecDeque<Call>,
    going: Option<Underway<Result<(), Failure>>>,
}

impl Orders {
    pub fn new(client: Client) -> Orders {
        Orders { client, waiting: VecDeque::new(), going: None }
    }

    /// Queues an order after those that are not done yet.
    pub fn send(&mut self, call: Call) {
        self.waiting.push_back(call);
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.going.is_none()
    }

    /// Waits until the next order is done; cancel-safe: no order is lost.
    ///
    /// # Errors
    /// The server cannot be reached. A refused order counts as done: the job has just ended.
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

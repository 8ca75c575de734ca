//! Streamed requests and responses, line by line: jobs to submit, output of jobs, events.

use std::ops::ControlFlow;

use futures_util::StreamExt as _;
use reqwest::{Method, Response};

use super::{Client, Error, NOTHING, Result, path};
use crate::job::Chunk;
use crate::problem::Problem;
use crate::session::OutputStream;

/// A piece of a job's output.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Printed {
    /// The stream that it was printed to.
    pub stream: OutputStream,
    /// The text.
    pub text: String,
}

/// An event of the stream, as it arrived.
#[derive(Clone, Debug, Default)]
pub struct StreamedEvent {
    /// The position to resume from after this event.
    pub id: String,
    /// Whether earlier events were missed; such an event contains nothing else.
    pub is_reset: bool,
    /// A [`crate::event::ClusterEvent`] in JSON; empty if the event only carries the position to
    /// resume from.
    pub data: String,
}

/// A subscription to the event stream.
#[derive(Debug)]
pub struct Events<'client> {
    client: &'client Client,
    response: Response,
}

impl Events<'_> {
    /// Calls `each` with every event until it returns `Break` or the stream ends.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn each(self, mut each: impl FnMut(StreamedEvent) -> ControlFlow<()>) -> Result<()> {
        let mut told = StreamedEvent::default();
        let mut is_enough = false;
        let read = self.client.lines(self.response, |line| {
            let line = std::str::from_utf8(line).map_err(|error| error.to_string())?;
            match line.split_once(": ") {
                Some(("id", id)) => id.clone_into(&mut told.id),
                Some(("event", name)) => told.is_reset = name == "reset",
                Some(("data", data)) => data.clone_into(&mut told.data),
                // An empty line ends an event; a colon begins a comment.
                _ if line.is_empty() && !told.id.is_empty() => {
                    is_enough = each(std::mem::take(&mut told)).is_break();
                }
                _ => {}
            }
            // The caller wants no more events.
            if is_enough { Err(String::new()) } else { Ok(()) }
        });
        let read = read.await;
        if is_enough { Ok(()) } else { read }
    }
}

impl Client {
    /// The output of a job; with `follow`, until the job has ended.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn log(&self, id: &str, follow: bool, mut each: impl FnMut(Printed)) -> Result<()> {
        let path = format!("/v1/jobs/{}/log?follow={follow}", path(id));
        let response = self.send(Method::GET, &path, NOTHING).await?;
        self.lines(response, |line| {
            serde_json::from_slice(line).map(&mut each).map_err(|error| error.to_string())
        })
        .await
    }

    /// Subscribes to events; `query` as in the API, without the question mark. `last` is the id of
    /// the last event that was received, to resume after it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn events(&self, query: &str, last: Option<&str>) -> Result<Events<'_>> {
        let mut request = self.http.request(Method::GET, format!("{}/v1/events?{query}", self.url));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        Ok(Events { client: self, response: self.answer(request).await? })
    }

    /// Submits lines of JSON; `each` is called with jobs that have become durable.
    ///
    /// # Errors
    /// See [`Error`]. Events that were passed to `each` stay valid.
    pub async fn submit_lines<S>(
        &self,
        body: S,
        key: Option<&str>,
        mut each: impl FnMut(Chunk),
    ) -> Result<()>
    where
        S: futures_util::Stream<Item = std::io::Result<Vec<u8>>> + Send + 'static,
    {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Answer {
            Chunk(Chunk),
            Problem(Problem),
        }
        let mut request = self
            .http
            .request(Method::POST, format!("{}/v1/jobs", self.url))
            .header("content-type", "application/x-ndjson")
            .body(reqwest::Body::wrap_stream(body));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let response = self.answer(request).await?;
        let mut problem = None;
        self.lines(response, |line| match serde_json::from_slice(line) {
            Ok(Answer::Chunk(chunk)) => {
                each(chunk);
                Ok(())
            }
            Ok(Answer::Problem(found)) => {
                problem = Some(found);
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        })
        .await?;
        problem.map_or(Ok(()), |problem| Err(Error::Refused(problem)))
    }

    async fn lines(
        &self,
        response: Response,
        mut each: impl FnMut(&[u8]) -> std::result::Result<(), String>,
    ) -> Result<()> {
        let mut body = response.bytes_stream();
        let mut buffer: Vec<u8> = Vec::new();
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| self.unreachable(&error))?;
            buffer.extend_from_slice(&piece);
            while let Some(end) = buffer.iter().position(|&byte| byte == b'\n') {
                each(&buffer[..end]).map_err(|why| self.strange(why))?;
                buffer.drain(..=end);
            }
        }
        Ok(())
    }
}

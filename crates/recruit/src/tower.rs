//! A tower layer that enlists after cheap HTTP responses. The response never waits for a slice.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use ::http::response::Parts;
use ::http::{Response, StatusCode};
use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tower_layer::Layer;
use tower_service::Service;

use crate::recruiter::Recruiter;

/// Default limit of slices that run at the same time.
const CONCURRENCY_LIMIT: usize = 4;

/// The extension with which a handler marks a response that was cheap to produce: from a cache, or
/// an empty result.
///
/// ```
/// use filch_recruit::tower::Cheap;
///
/// let mut response = http::Response::new("from the cache");
/// response.extensions_mut().insert(Cheap);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cheap;

/// Enlists after every cheap response: `304 Not Modified`, `204 No Content`, responses marked as
/// [`Cheap`], and those that a [predicate](Self::when) selects.
///
/// The draw delays the response by some nanoseconds. If a job is drawn, its slice runs on one of
/// the runtime's threads for blocking work, while the response is already on its way.
///
/// ```
/// use std::sync::Arc;
/// use filch_recruit::tower::EnlistLayer;
/// use filch_recruit::{Duty, Rate, Recruiter};
///
/// let builder = Recruiter::builder().job("reap", Rate::new(0.003)?, |_: &mut _| Ok(Duty::NoWork));
/// let recruiter = Arc::new(builder.build()?);
/// let layer = EnlistLayer::new(recruiter).when(|response| response.headers.contains_key("age"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct EnlistLayer {
    recruiter: Arc<Recruiter>,
    is_cheap: Option<Arc<Predicate>>,
    concurrency_limit: usize,
    /// Number of slices running now, over all services of this layer.
    busy: Arc<AtomicUsize>,
}

type Predicate = dyn Fn(&Parts) -> bool + Send + Sync;

impl fmt::Debug for EnlistLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnlistLayer").field("recruiter", &self.recruiter).finish_non_exhaustive()
    }
}

impl EnlistLayer {
    /// Enlists with this recruiter.
    pub fn new(recruiter: Arc<Recruiter>) -> Self {
        Self {
            recruiter,
            is_cheap: None,
            concurrency_limit: CONCURRENCY_LIMIT,
            busy: Arc::default(),
        }
    }

    /// Treats responses that satisfy this predicate as cheap, too.
    #[must_use]
    pub fn when(mut self, is_cheap: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.is_cheap = Some(Arc::new(is_cheap));
        self
    }

    /// The number of slices that may run at the same time; the default is 4. Draws beyond that are
    /// counted as over budget.
    #[must_use]
    pub fn concurrency_limit(mut self, limit: usize) -> Self {
        self.concurrency_limit = limit;
        self
    }

    fn is_cheap(&self, response: &Parts) -> bool {
        if matches!(response.status, StatusCode::NOT_MODIFIED | StatusCode::NO_CONTENT)
            || response.extensions.get::<Cheap>().is_some()
        {
            return true;
        }
        let Some(is_cheap) = &self.is_cheap else { return false };
        // The predicate belongs to the host. If it panics, the response is still delivered.
        catch_unwind(AssertUnwindSafe(|| is_cheap(response))).unwrap_or(false)
    }

    /// Draws, and starts the slice of a job that was drawn.
    fn enlist(&self) {
        let Some(drawn) = self.recruiter.draw() else { return };
        let busy = self.begin();
        let (Some(busy), Ok(runtime)) = (busy, Handle::try_current()) else {
            self.recruiter.skip(drawn);
            return;
        };
        let recruiter = Arc::clone(&self.recruiter);
        // The tasks are not joined: the recruiter counts how their slices end.
        if recruiter.is_async(drawn) {
            runtime.spawn(async move {
                recruiter.run_async(drawn).await;
                drop(busy);
            });
        } else {
            runtime.spawn_blocking(move || {
                recruiter.run(drawn);
                drop(busy);
            });
        }
    }

    /// Counts one more running slice, if the limit allows it.
    fn begin(&self) -> Option<Busy> {
        // Relaxed: it only counts.
        let more = |busy| (busy < self.concurrency_limit).then_some(busy + 1);
        self.busy.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Busy(Arc::clone(&self.busy)))
    }
}

/// Counts one running slice until it is dropped, also if the runtime shuts down before it starts.
struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl<S> Layer<S> for EnlistLayer {
    type Service = Enlist<S>;

    fn layer(&self, inner: S) -> Enlist<S> {
        Enlist { inner, layer: self.clone() }
    }
}

/// A service that enlists after cheap responses: see [`EnlistLayer`].
#[derive(Clone, Debug)]
pub struct Enlist<S> {
    inner: S,
    layer: EnlistLayer,
}

impl<S, Request, Body> Service<Request> for Enlist<S>
where
    S: Service<Request, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = EnlistFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        EnlistFuture { inner: self.inner.call(request), layer: self.layer.clone() }
    }
}

pin_project! {
    /// The response of an [`Enlist`].
    #[derive(Debug)]
    pub struct EnlistFuture<F> {
        #[pin]
        inner: F,
        layer: EnlistLayer,
    }
}

impl<F, Body, Error> Future for EnlistFuture<F>
where
    F: Future<Output = Result<Response<Body>, Error>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let (parts, body) = ready!(this.inner.poll(context))?.into_parts();
        if this.layer.is_cheap(&parts) {
            this.layer.enlist();
        }
        Poll::Ready(Ok(Response::from_parts(parts, body)))
    }
}

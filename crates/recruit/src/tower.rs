//! A layer for HTTP services that enlists after cheap responses. The response never waits for it.

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

/// How many slices there are at once at most, if nothing else is said.
const AT_ONCE: usize = 4;

/// What a handler puts into the extensions of a response that was cheap to make: it came out of a cache,
/// or there was nothing to be found.
///
/// ```
/// use filch_recruit::tower::Cheap;
///
/// let mut response = http::Response::new("from the cache");
/// response.extensions_mut().insert(Cheap);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cheap;

/// Enlists after every response that was cheap: those that say `304 Not Modified` or `204 No Content`, those
/// that are marked as [`Cheap`], and those [that are said to be](Self::when).
///
/// Drawing costs the response some nanoseconds. Who is drawn does the slice on a thread of the runtime
/// that is meant for blocking, when the response is already on its way.
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
    at_once: usize,
    /// How many slices there are now, of all services of this layer.
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
        Self { recruiter, is_cheap: None, at_once: AT_ONCE, busy: Arc::default() }
    }

    /// Responses of which this is true are cheap, too.
    #[must_use]
    pub fn when(mut self, is_cheap: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.is_cheap = Some(Arc::new(is_cheap));
        self
    }

    /// How many slices there are at once at most: 4 if not said. Who is drawn beyond that is counted as
    /// over budget.
    #[must_use]
    pub fn concurrency_limit(mut self, most: usize) -> Self {
        self.at_once = most;
        self
    }

    fn is_cheap(&self, response: &Parts) -> bool {
        if matches!(response.status, StatusCode::NOT_MODIFIED | StatusCode::NO_CONTENT)
            || response.extensions.get::<Cheap>().is_some()
        {
            return true;
        }
        let Some(is_cheap) = &self.is_cheap else { return false };
        // It is the host's; but should it panic, the response is no worse for it.
        catch_unwind(AssertUnwindSafe(|| is_cheap(response))).unwrap_or(false)
    }

    /// Draws, and hands over what was drawn.
    fn enlist(&self) {
        let Some(drawn) = self.recruiter.draw() else { return };
        let busy = self.begin();
        let (Some(busy), Ok(runtime)) = (busy, Handle::try_current()) else {
            self.recruiter.forgo(drawn);
            return;
        };
        let recruiter = Arc::clone(&self.recruiter);
        // Nobody waits for either: what becomes of a slice is the recruiter's to count.
        if recruiter.awaits(drawn) {
            runtime.spawn(async move {
                recruiter.serve_async(drawn).await;
                drop(busy);
            });
        } else {
            runtime.spawn_blocking(move || {
                recruiter.serve(drawn);
                drop(busy);
            });
        }
    }

    /// One more slice, if there may be one more.
    fn begin(&self) -> Option<Busy> {
        // It counts, and guards nothing.
        let more = |busy| (busy < self.at_once).then_some(busy + 1);
        self.busy.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Busy(Arc::clone(&self.busy)))
    }
}

/// One of the slices there are; also one that is never begun because the runtime ends.
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

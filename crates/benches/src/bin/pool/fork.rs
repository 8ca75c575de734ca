//! One way to write a recursive workload for every rival.
//!
//! chili passes a scope down, the others find their pool by themselves. So a call is a value that
//! gets what it needs to fork. All of this is optimized away.

/// A call that another thread may execute.
pub(crate) trait Call<R>: Send {
    fn call(self, fork: &mut impl Fork) -> R;
}

/// Executes two calls, possibly in parallel.
pub(crate) trait Fork {
    fn join<RA: Send, RB: Send>(&mut self, a: impl Call<RA>, b: impl Call<RB>) -> (RA, RB);
}

/// One after the other.
pub(crate) struct Serial;

pub(crate) struct Ours;

pub(crate) struct Rayon;

impl Fork for Serial {
    #[inline(always)]
    fn join<RA: Send, RB: Send>(&mut self, a: impl Call<RA>, b: impl Call<RB>) -> (RA, RB) {
        (a.call(self), b.call(self))
    }
}

impl Fork for Ours {
    #[inline(always)]
    fn join<RA: Send, RB: Send>(&mut self, a: impl Call<RA>, b: impl Call<RB>) -> (RA, RB) {
        filch_pool::join(move || a.call(&mut Self), move || b.call(&mut Self))
    }
}

impl Fork for Rayon {
    #[inline(always)]
    fn join<RA: Send, RB: Send>(&mut self, a: impl Call<RA>, b: impl Call<RB>) -> (RA, RB) {
        rayon::join(move || a.call(&mut Self), move || b.call(&mut Self))
    }
}

impl Fork for chili::Scope<'_> {
    #[inline(always)]
    fn join<RA: Send, RB: Send>(&mut self, a: impl Call<RA>, b: impl Call<RB>) -> (RA, RB) {
        // chili starts with the second; swapped, so that all rivals access memory in the same
        // order.
        let (b, a) = self.join(move |scope| b.call(scope), move |scope| a.call(scope));
        (a, b)
    }
}

/// The rivals of our pool in workloads of this kind.
pub(crate) const RIVALS: [&str; 3] = ["serial", "rayon", "chili"];

//! One way to write a recursive workload for every rival.
//!
//! chili hands a scope down, the others find their pool by themselves; what is called is therefore
//! a value that is given whatever it needs to fork. All of this vanishes when it is compiled.

/// Something to be called, perhaps by another thread.
pub(crate) trait Call<R>: Send {
    fn call(self, fork: &mut impl Fork) -> R;
}

/// Calls two of them, perhaps at the same time.
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
        // It begins with the second: so everybody walks through memory in the same order.
        let (b, a) = self.join(move |scope| b.call(scope), move |scope| a.call(scope));
        (a, b)
    }
}

/// Whom our pool is compared with, in workloads of this kind.
pub(crate) const RIVALS: [&str; 3] = ["serial", "rayon", "chili"];

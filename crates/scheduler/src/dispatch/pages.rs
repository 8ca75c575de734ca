//! The storage of jobs in memory: by number, in the order of submission.
//!
//! Numbers only grow, while old jobs leave; so the table is sparse. Jobs are stored on pages, pages
//! in chapters, and only the chapters are searched: a million queued jobs need thirty of them. A
//! page or chapter is freed with its last job, so a few old jobs among millions of finished ones
//! use little memory.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::job::Job;
use crate::id::Seq;

/// Jobs on one page.
const PAGE: u64 = 32;

/// Pages in one chapter.
const CHAPTER: u64 = 1_024;

/// All jobs, by number.
#[derive(Default)]
pub(crate) struct Pages {
    chapters: BTreeMap<u64, Chapter>,
}

struct Chapter {
    pages: Vec<Option<Box<Page>>>,
    used: u32,
}

struct Page {
    jobs: [Option<Job>; PAGE as usize],
    used: u32,
}

/// Where a number is: chapter, page in it, place on that.
const fn place(seq: Seq) -> (u64, usize, usize) {
    let page = seq.0 / PAGE;
    (page / CHAPTER, (page % CHAPTER) as usize, (seq.0 % PAGE) as usize)
}

impl Pages {
    pub(crate) fn find(&self, seq: Seq) -> Option<&Job> {
        let (chapter, page, at) = place(seq);
        self.chapters.get(&chapter)?.pages[page].as_ref()?.jobs[at].as_ref()
    }

    pub(crate) fn find_mut(&mut self, seq: Seq) -> Option<&mut Job> {
        let (chapter, page, at) = place(seq);
        self.chapters.get_mut(&chapter)?.pages[page].as_mut()?.jobs[at].as_mut()
    }

    /// Adds a job under a number that has none.
    pub(crate) fn insert(&mut self, seq: Seq, job: Job) {
        let (chapter, page, at) = place(seq);
        let chapter = self.chapters.entry(chapter).or_insert_with(Chapter::new);
        let page = chapter.pages[page].get_or_insert_with(|| {
            chapter.used += 1;
            Box::new(Page { jobs: [const { None }; PAGE as usize], used: 0 })
        });
        assert!(page.jobs[at].is_none(), "a job's number is used once");
        page.jobs[at] = Some(job);
        page.used += 1;
    }

    pub(crate) fn remove(&mut self, seq: Seq) -> Option<Job> {
        let (number, at_page, at) = place(seq);
        let chapter = self.chapters.get_mut(&number)?;
        let page = chapter.pages[at_page].as_mut()?;
        let job = page.jobs[at].take()?;
        page.used -= 1;
        if page.used == 0 {
            chapter.pages[at_page] = None;
            chapter.used -= 1;
        }
        if chapter.used == 0 {
            self.chapters.remove(&number);
        }
        Some(job)
    }

    /// Every job from this number on, in order.
    pub(crate) fn iter_from(&self, first: Seq) -> impl Iterator<Item = (Seq, &Job)> {
        let chapters = self.chapters.range(place(first).0..);
        let pages = chapters.flat_map(|(&chapter, it)| (chapter * CHAPTER..).zip(&it.pages));
        let pages = pages.filter_map(|(number, page)| Some((number, page.as_ref()?)));
        let jobs = pages.flat_map(|(number, page)| (number * PAGE..).map(Seq).zip(&page.jobs));
        let jobs = jobs.filter_map(|(seq, job)| Some((seq, job.as_ref()?)));
        jobs.skip_while(move |&(seq, _)| seq < first)
    }
}

impl Chapter {
    fn new() -> Self {
        let pages = core::iter::repeat_with(|| None).take(CHAPTER as usize).collect();
        Self { pages, used: 0 }
    }
}

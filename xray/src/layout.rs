//! Where the fields of DPDK's structures are: offsets in bytes, by release and build options.

mod machine;
mod plausible;
mod structures;
mod table;
mod version;

use self::plausible::PoolEvidence;
pub(crate) use self::structures::STRUCTURES;
use self::structures::Structure;
pub use self::structures::{
    CacheLayout, EthDevDataLayout, EthDevLayout, EthDevSharedLayout, EthFpOpsLayout, FbarrayLayout,
    LcoreConfigLayout, MallocElemLayout, MallocHeapLayout, MbufLayout, MemConfigLayout,
    MemhdrLayout, MempoolLayout, MempoolOpsLayout, MempoolOpsTableLayout, MemsegListLayout,
    MemzoneLayout, ObjhdrLayout, PktmbufPoolLayout, RingLayout, SharedInfoLayout,
    StackElementLayout, StackLayout, TailqEntryLayout, TailqHeadLayout,
};
pub(crate) use self::table::Offsets;
use self::table::{Build, Machine, Release};
use crate::debug_info::offsets;
use crate::error::XrayError;
use crate::memory::Memory;
use crate::memzone::Memzone;

/// `RTE_MAX_LCORE` if no mempool shows it.
const USUAL_MAX_LCORE: u32 = 128;

/// Offsets of one build of DPDK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Year and month of the release.
    pub release: (u16, u16),
    /// `RTE_MAX_LCORE`: caches of a mempool.
    pub max_lcore: u32,
    /// `struct rte_mempool`.
    pub mempool: MempoolLayout,
    /// `struct rte_mempool_cache`.
    pub cache: CacheLayout,
    /// `struct rte_mempool_memhdr`: a chunk of memory of a mempool.
    pub memhdr: MemhdrLayout,
    /// `struct rte_mempool_objhdr`: in front of each object.
    pub objhdr: ObjhdrLayout,
    /// `struct rte_mempool_ops`: a handler of mempools.
    pub mempool_ops: MempoolOpsLayout,
    /// `struct rte_mempool_ops_table`: the handlers.
    pub mempool_ops_table: MempoolOpsTableLayout,
    /// `struct rte_ring`.
    pub ring: RingLayout,
    /// `struct rte_stack`: contains the free objects of the handlers `stack` and `lf_stack`.
    pub stack: StackLayout,
    /// `struct rte_stack_lf_elem`.
    pub stack_element: StackElementLayout,
    /// `struct rte_mbuf`.
    pub mbuf: MbufLayout,
    /// `struct rte_mbuf_ext_shared_info`.
    pub shared_info: SharedInfoLayout,
    /// `struct rte_pktmbuf_pool_private`.
    pub pktmbuf_pool: PktmbufPoolLayout,
    /// `struct rte_memzone`.
    pub memzone: MemzoneLayout,
    /// `struct rte_fbarray`.
    pub fbarray: FbarrayLayout,
    /// `struct rte_tailq_head`.
    pub tailq_head: TailqHeadLayout,
    /// `struct rte_tailq_entry`.
    pub tailq_entry: TailqEntryLayout,
    /// `struct malloc_elem`.
    pub malloc_elem: MallocElemLayout,
    /// `struct malloc_heap`.
    pub malloc_heap: MallocHeapLayout,
    /// `struct rte_memseg_list`.
    pub memseg_list: MemsegListLayout,
    /// `struct rte_mem_config`.
    pub mem_config: MemConfigLayout,
    /// `struct lcore_config`.
    pub lcore_config: LcoreConfigLayout,
    /// `struct rte_eth_fp_ops`.
    pub eth_fp_ops: EthFpOpsLayout,
    /// `struct rte_eth_dev`.
    pub eth_dev: EthDevLayout,
    /// `struct rte_eth_dev_data`.
    pub eth_dev_data: EthDevDataLayout,
    /// Content of the memzone `rte_eth_dev_data`.
    pub eth_dev_shared: EthDevSharedLayout,
}

/// Where `buf_iova` of an mbuf is, and `next` of one in a build without IOVA in mbufs.
const BUF_IOVA: u64 = 8;

impl MbufLayout {
    /// Offset of `buf_iova`, which may be a physical address; none in builds without it.
    pub fn buf_iova(&self) -> Option<u64> {
        (self.next != BUF_IOVA).then_some(BUF_IOVA)
    }
}

impl Layout {
    /// The layout of an app that reports this version of DPDK, such as "DPDK 22.11.11". The build
    /// options of its DPDK are found by comparing its mempools with the layouts of all options;
    /// without mempools the usual options are assumed. Debug information of the app, or in separate
    /// files, is preferred to the table.
    ///
    /// # Errors
    /// [`XrayError::UnknownLayout`] if the release is not known, or no layout is plausible; those of
    /// [`Memory::read`] if the app has ended or may not be read.
    pub fn select(
        version: &str,
        memory: &dyn Memory,
        memzones: &[Memzone],
    ) -> Result<Self, XrayError> {
        Self::select_with(&offsets::offsets_of_app(memory), version, memory, memzones)
    }

    fn select_with(
        debug: &Offsets,
        version: &str,
        memory: &dyn Memory,
        memzones: &[Memzone],
    ) -> Result<Self, XrayError> {
        let unknown = |why| XrayError::UnknownLayout { version: version.to_owned(), why };
        let release = version::stated(version).map_err(unknown)?;
        let machines = machine::of(memory)?.map_err(unknown)?;
        let table = Offsets::new();
        let sources = [debug, &table].into_iter().skip(usize::from(debug.is_empty()));
        let mut refusal = version::known(release).err();
        for (source, machine) in
            sources.flat_map(|source| machines.iter().map(move |m| (source, *m)))
        {
            for build in Build::OF_POOLS {
                let of = |build| Self::of(release, machine, build, source);
                let compared = match of(build) {
                    Ok(layout) => layout.compared(memory, memzones)?,
                    Err(why) => Err(why),
                };
                match compared {
                    Ok(PoolEvidence { max_lcore, no_iova }) => {
                        let build = Build { no_iova: no_iova == Some(true), ..build };
                        let layout = of(build).map_err(unknown)?;
                        return Ok(layout.with_max_lcore(max_lcore.unwrap_or(USUAL_MAX_LCORE)));
                    }
                    // The reason why the usual build is not plausible is more helpful than that of
                    // a rare one.
                    Err(why) => _ = refusal.get_or_insert(why),
                }
            }
        }
        Err(unknown(refusal.unwrap_or_default()))
    }

    /// Build properties shown by the mempools if one of them has this layout, or the reason why
    /// none has.
    fn compared(
        &self,
        memory: &dyn Memory,
        memzones: &[Memzone],
    ) -> Result<Result<PoolEvidence, String>, XrayError> {
        let mut refusal = None;
        let mut evidence: Option<PoolEvidence> = None;
        for zone in plausible::pool_zones(memzones) {
            match plausible::evidence(self, memory, memzones, zone) {
                Ok(more) => match evidence.get_or_insert_default().join(&more) {
                    Ok(()) => {}
                    Err(why) => return Ok(Err(why)),
                },
                Err(why @ (XrayError::Implausible { .. } | XrayError::NotMapped { .. })) => {
                    refusal.get_or_insert(why.to_string());
                }
                Err(why) => return Err(why),
            }
        }
        Ok(match (evidence, refusal) {
            (Some(evidence), _) => Ok(evidence),
            (None, Some(why)) => Err(why),
            (None, None) => Ok(PoolEvidence::default()),
        })
    }

    /// The layout for this number of lcores, for each of which a mempool may have statistics.
    fn with_max_lcore(mut self, max_lcore: u32) -> Self {
        self.max_lcore = max_lcore;
        let pool = &mut self.mempool;
        if pool.stats_bytes > 0 {
            let count = u64::from(max_lcore).saturating_add(pool.stats_more);
            pool.bytes = pool.bytes.saturating_add(count.saturating_mul(pool.stats_bytes));
        }
        self
    }

    /// The layout of a build in the table, except structures that the debug information has.
    fn of(
        release: Release,
        machine: Machine,
        build: Build,
        debug: &Offsets,
    ) -> Result<Self, String> {
        let mut offsets = table::offsets(release, machine, build);
        offsets.extend(debug);
        Self::assemble(release, &offsets)
    }

    /// DPDK 22.11 on x86-64, for tests.
    #[cfg(test)]
    pub(crate) fn dpdk_22_11() -> Self {
        Self::of((22, 11), Machine::X86, Build::default(), &Offsets::new()).unwrap()
    }

    fn assemble(release: Release, offsets: &Offsets) -> Result<Self, String> {
        Ok(Self {
            release,
            max_lcore: USUAL_MAX_LCORE,
            mempool: structure(offsets)?,
            cache: structure(offsets)?,
            memhdr: structure(offsets)?,
            objhdr: structure(offsets)?,
            mempool_ops: structure(offsets)?,
            mempool_ops_table: structure(offsets)?,
            ring: structure(offsets)?,
            stack: structure(offsets)?,
            stack_element: structure(offsets)?,
            mbuf: structure(offsets)?,
            shared_info: structure(offsets)?,
            pktmbuf_pool: structure(offsets)?,
            memzone: structure(offsets)?,
            fbarray: structure(offsets)?,
            tailq_head: structure(offsets)?,
            tailq_entry: structure(offsets)?,
            malloc_elem: structure(offsets)?,
            malloc_heap: structure(offsets)?,
            memseg_list: structure(offsets)?,
            mem_config: structure(offsets)?,
            lcore_config: structure(offsets)?,
            eth_fp_ops: structure(offsets)?,
            eth_dev: structure(offsets)?,
            eth_dev_data: structure(offsets)?,
            eth_dev_shared: structure(offsets)?,
        })
    }
}

/// The offsets in one structure, or the name of one that is missing.
fn structure<S: Structure>(offsets: &Offsets) -> Result<S, String> {
    let offset = |member: &str| offsets.get(&(S::NAME, member)).copied();
    S::new(&offset).map_err(|member| format!("the offset of {}.{member} is missing", S::NAME))
}

#[cfg(test)]
mod installed;
#[cfg(test)]
mod tests;

//! What instructions access, decoded from the code that ran.

use std::collections::HashMap;
use std::slice;

use iced_x86::{
    Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    Register, UsedMemory,
};

use super::stepping::Step;

/// The longest instruction.
const LONGEST: usize = 15;

/// Size in bytes of a unit of cache coherence.
const LINE: u64 = 64;

/// What an instruction does to a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Load,
    Store,
    /// An atomic read-modify-write: an instruction with the lock prefix, or an exchange with
    /// memory. Not what a compiler has turned into a fence and a load.
    ReadModifyWrite,
}

/// Decodes each instruction once.
pub struct Accesses {
    /// What the instruction at each address accesses.
    known: HashMap<u64, Vec<(UsedMemory, Kind)>>,
    factory: InstructionInfoFactory,
}

impl Accesses {
    pub fn new() -> Self {
        Self {
            known: HashMap::new(),
            factory: InstructionInfoFactory::new(),
        }
    }

    /// Tells each line that an instruction which was stepped through accesses, and how.
    pub fn of(&mut self, step: &Step, thread_segment: u64, mut tell: impl FnMut(u64, Kind)) {
        let Self { known, factory } = self;
        let accessed = known
            .entry(step.at)
            .or_insert_with(|| decode(&instruction_at(step.at), factory));
        for (memory, kind) in accessed {
            let value = |register: Register, _, _| value_of(register, step, thread_segment);
            let Some(address) = memory.virtual_address(0, value) else {
                continue;
            };
            let bytes = memory.memory_size().size().max(1) as u64;
            let lines = address / LINE..=(address + bytes - 1) / LINE;
            lines.for_each(|line| tell(line, *kind));
        }
    }
}

fn instruction_at(at: u64) -> Instruction {
    // SAFETY: the processor has just run the instruction, so its bytes can be read; code is mapped
    // by pages, and what an instruction near the end of the last one does not need is not looked
    // at: `bytes_up_to_the_page` ends there.
    let code = unsafe { slice::from_raw_parts(at as *const u8, bytes_up_to_the_page(at)) };
    let short = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
    if short.code() != Code::INVALID {
        return short;
    }
    // SAFETY: the instruction goes on behind the page's end, so that page is there too.
    let code = unsafe { slice::from_raw_parts(at as *const u8, LONGEST) };
    Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode()
}

fn bytes_up_to_the_page(at: u64) -> usize {
    LONGEST.min(4096 - (at % 4096) as usize)
}

fn decode(
    instruction: &Instruction,
    factory: &mut InstructionInfoFactory,
) -> Vec<(UsedMemory, Kind)> {
    let is_atomic = instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg;
    let kind = |access| match access {
        OpAccess::Read | OpAccess::CondRead => Some(Kind::Load),
        OpAccess::Write | OpAccess::CondWrite => Some(Kind::Store),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite if is_atomic => Some(Kind::ReadModifyWrite),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => Some(Kind::Store),
        _ => None,
    };
    let memory = factory.info(instruction).used_memory().iter();
    memory
        .filter_map(|used| Some((*used, kind(used.access())?)))
        .collect()
}

fn value_of(register: Register, step: &Step, thread_segment: u64) -> Option<u64> {
    match register {
        Register::FS => Some(thread_segment),
        // The other segments begin at 0.
        Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
        _ if register.is_gpr() => {
            let full = step.registers[register.full_register().number()];
            Some(match register.size() {
                4 => full & 0xffff_ffff,
                _ => full,
            })
        }
        // Vectors of addresses, which nothing here uses.
        _ => None,
    }
}

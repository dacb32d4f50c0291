// What tells the memory that a forward pass saved from any other.

#include "src/engines/fast_weights/saved.h"

#include "src/core/saved_header.h"
#include "src/engines/fast_weights/work.h"

namespace ttr::fast_weights {
namespace {

SavedHeader NoteOf(const Work& work, bool saved) {
  const Options& o = work.options;
  const std::int64_t choices = o.steps * 64 + (o.phase ? 32 : 0) + (o.momentum ? 16 : 0) +
                               (o.transforms_outputs() ? 8 : 0) + (o.erases() ? 4 : 0) +
                               (SavedLayout::KeepsLast(o) ? 2 : 0) +
                               (o.denominator != Denominator::kNone ? 1 : 0);
  const auto dtype = static_cast<std::int64_t>(work.sizes.state);
  // Strips have another width on another target.
  const std::int64_t layout = 4 * StripColumns(work.sizes.state) + 2 * dtype + (saved ? 1 : 0);
  return {.numbers = {work.sequences.tokens(), work.sequences.count(), work.heads.memories,
                      work.sizes.key_dim, work.sizes.value_dim, choices, layout}};
}

}  // namespace

std::byte* SavedArrays(const Work& work) { return SavedHeader::Behind(work.call.saved); }

void NoteSaved(const Work& work) { NoteOf(work, work.sizes.saved).WriteTo(work.call.saved); }

bool FindSaved(Work& work) {
  for (const bool something : {false, true}) {
    if (!NoteOf(work, something).StandsIn(work.call.saved)) continue;
    work.sizes.saved = something;
    return true;
  }
  return false;
}

}  // namespace ttr::fast_weights

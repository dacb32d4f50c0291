// What tells the memory that a forward pass kept from any other.

#include "src/engines/fast_weights/kept.h"

#include "src/core/kept_note.h"
#include "src/engines/fast_weights/work.h"

namespace ttr::fast_weights {
namespace {

KeptNote NoteOf(const Work& work, bool kept) {
  const Options& o = work.options;
  const std::int64_t choices = o.steps * 64 + (o.phase ? 32 : 0) + (o.momentum ? 16 : 0) +
                               (o.transforms_answers() ? 8 : 0) + (o.erases() ? 4 : 0) +
                               (KeptLayout::KeepsLast(o) ? 2 : 0) +
                               (o.denominator != Denominator::kNone ? 1 : 0);
  const auto dtype = static_cast<std::int64_t>(work.sizes.state);
  // Strips have another width on another target.
  const std::int64_t layout = 4 * StripColumns(work.sizes.state) + 2 * dtype + (kept ? 1 : 0);
  return {.numbers = {work.tokens, work.sequences, work.heads, work.sizes.key_dim,
                      work.sizes.value_dim, choices, layout}};
}

}  // namespace

std::byte* KeptArrays(const Work& work) { return KeptNote::Behind(work.call.kept); }

void NoteKept(const Work& work) { NoteOf(work, work.sizes.kept).WriteTo(work.call.kept); }

bool FindKept(Work& work) {
  for (const bool something : {false, true}) {
    if (!NoteOf(work, something).StandsIn(work.call.kept)) continue;
    work.sizes.kept = something;
    return true;
  }
  return false;
}

}  // namespace ttr::fast_weights

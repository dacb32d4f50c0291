// What tells the memory that a forward pass kept from any other.

#include "src/engines/fast_weights/kept.h"

#include <cstring>

#include "src/engines/fast_weights/work.h"

namespace ttr::fast_weights {
namespace {

constexpr std::uint64_t kMagic = 0x74747220'6b657074;  // "ttr kept"

struct Note {
  std::uint64_t magic = kMagic;
  std::int64_t tokens, sequences, heads, key_dim, value_dim;
  std::int32_t dtype, strip;  // strip: value columns of it on the target
  std::int32_t choices, something;

  Note(const Work& work, bool kept) {
    const Options& o = work.options;
    tokens = work.tokens;
    sequences = work.sequences;
    heads = work.heads;
    key_dim = work.sizes.key_dim;
    value_dim = work.sizes.value_dim;
    dtype = static_cast<std::int32_t>(work.sizes.state);
    strip = static_cast<std::int32_t>(StripColumns(work.sizes.state));
    choices = o.steps * 8 + (o.erases() ? 4 : 0) + (KeptLayout::KeepsLast(o) ? 2 : 0) +
              (o.denominator != Denominator::kNone ? 1 : 0);
    something = kept ? 1 : 0;
  }
};
static_assert(sizeof(Note) == kKeptNoteBytes);

}  // namespace

std::byte* KeptArrays(const Work& work) { return Align(work.call.kept.data()) + kKeptNoteBytes; }

void NoteKept(const Work& work) {
  const Note note(work, work.sizes.kept);
  std::memcpy(Align(work.call.kept.data()), &note, sizeof(note));
}

bool FindKept(Work& work) {
  for (const bool something : {false, true}) {
    const Note note(work, something);
    if (std::memcmp(Align(work.call.kept.data()), &note, sizeof(note)) != 0) continue;
    work.sizes.kept = something;
    return true;
  }
  return false;
}

}  // namespace ttr::fast_weights

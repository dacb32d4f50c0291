// What all engines share: sequences, heads, tasks, scratch, sums.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "src/engines/common/partial_sums.h"
#include "src/engines/common/row_views.h"
#include "src/engines/common/scratch_layout.h"
#include "src/engines/common/sequences.h"
#include "src/engines/common/tasks.h"

namespace ttr::common {
namespace {

TEST(Sequences, OfABatch) {
  const Sequences sequences({}, 3, 5);
  EXPECT_FALSE(sequences.packed());
  EXPECT_EQ(sequences.count(), 3);
  EXPECT_EQ(sequences.tokens(), 15);
  EXPECT_EQ(sequences.longest(), 5);
  const Sequence last = sequences[2];
  EXPECT_EQ(last.batch, 2);
  EXPECT_EQ(last.first, 0);
  EXPECT_EQ(last.tokens, 5);
  EXPECT_EQ(sequences.Place(last), 10);
  EXPECT_EQ(Sequences({}, 0, 5).longest(), 0);
}

TEST(Sequences, Packed) {
  const std::array<std::int64_t, 4> bounds = {0, 2, 2, 7};
  const Sequences sequences(bounds, 1, 7);
  EXPECT_TRUE(sequences.packed());
  EXPECT_EQ(sequences.count(), 3);
  EXPECT_EQ(sequences.tokens(), 7);
  EXPECT_EQ(sequences.longest(), 5);
  EXPECT_EQ(sequences[1].tokens, 0);
  EXPECT_EQ(sequences[2].batch, 0);
  EXPECT_EQ(sequences[2].first, 2);
  EXPECT_EQ(sequences[2].tokens, 5);
  EXPECT_EQ(sequences.Place(sequences[2]), 2);
}

TEST(Heads, SharedKeysAndSeveralQueries) {
  const Tensor shared(DType::kFloat32, {1, 1, 2, 1}), own(DType::kFloat32, {1, 1, 4, 1});
  const Tensor many(DType::kFloat32, {1, 1, 8, 1});
  const Heads one(4, shared), several(4, many);
  EXPECT_EQ(one.queries, 1);
  EXPECT_EQ(one.Of(3, shared), 1);
  EXPECT_EQ(one.Of(3, own), 3);
  EXPECT_EQ(one.QueryOf(1, shared), 0);
  EXPECT_EQ(one.OutputOf(3), 3);
  EXPECT_EQ(several.queries, 2);
  EXPECT_EQ(several.QueryOf(3, many), 6);
  EXPECT_EQ(several.OutputOf(3), 6);
  EXPECT_EQ(Heads(4, TensorView()).queries, 1);
}

TEST(ColumnParts, CutOnlyWhereMemoriesDoNotEmployAllThreads) {
  ColumnParts enough{.columns = 100};
  enough.Cut(4, 4, 16);
  EXPECT_EQ(enough.count, 1);
  EXPECT_EQ(enough.Columns(0), 100);
  ColumnParts cut{.columns = 100};
  cut.Cut(1, 3, 16);  // seven units: 3, 3 and 1
  EXPECT_EQ(cut.count, 3);
  EXPECT_EQ(cut.First(2), 96);
  EXPECT_EQ(cut.Columns(2), 4);
  ColumnParts fewer_units{.columns = 100};
  fewer_units.Cut(1, 64, 64);
  EXPECT_EQ(fewer_units.count, 2);
  ColumnParts none{.columns = 0};
  none.Cut(0, 2, 16);
  EXPECT_EQ(none.count, 1);
}

TEST(Task, GoesThroughSequencesHeadsAndParts) {
  std::int64_t item = 0;
  for (std::int64_t n = 0; n < 2; ++n) {
    for (std::int64_t h = 0; h < 3; ++h) {
      for (std::int64_t part = 0; part < 2; ++part, ++item) {
        const Task task = Task::Of(item, 3, 2);
        EXPECT_EQ(task.sequence, n);
        EXPECT_EQ(task.head, h);
        EXPECT_EQ(task.part, part);
      }
    }
  }
  EXPECT_EQ(Task::Of(5, 3, 1).head, 2);
}

struct SomeScratch {
  float* rows;
  double* absent;
  std::uint8_t *flags, *more;
  SomeScratch(std::int64_t count, ScratchLayout& layout) {
    rows = layout.Take<float>(count);
    absent = layout.Take<double>(0);
    layout.Take(count, {&flags, &more});
  }
};

TEST(ScratchLayout, CountsWhatItHandsOut) {
  const std::size_t bytes = ScratchBytesOf<SomeScratch>(std::int64_t{17});
  EXPECT_EQ(bytes, 128u + 64 + 64);
  alignas(64) std::byte memory[256];
  ASSERT_EQ(sizeof(memory), bytes);
  ScratchLayout layout(memory);
  const SomeScratch scratch(17, layout);
  EXPECT_EQ(layout.bytes(), bytes);
  EXPECT_EQ(static_cast<void*>(scratch.rows), memory);
  EXPECT_EQ(scratch.absent, nullptr);
  EXPECT_EQ(static_cast<void*>(scratch.flags), memory + 128);
  EXPECT_EQ(static_cast<void*>(scratch.more), memory + 192);
}

TEST(ScratchLayout, LeavesGapsAndRepeats) {
  alignas(64) std::byte memory[1024];
  ScratchLayout layout(memory);
  layout.LeaveGaps();
  layout.Take<float>(1);
  EXPECT_EQ(layout.Repeat(3), 256);
  EXPECT_EQ(static_cast<void*>(layout.Take<float>(1)), memory + 768);
  EXPECT_EQ(layout.bytes(), 1024u);
}

TEST(WorkerScratch, GivesEveryWorkerItsOwn) {
  std::vector<std::byte> given(WorkerScratch::Bytes(2, 128, 64));
  const WorkerScratch scratch("op", given, 2, 128, 64);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(scratch.Of(0)) % 64, 0u);
  EXPECT_EQ(scratch.Of(1), scratch.Of(0) + 128);
  EXPECT_EQ(scratch.shared(), scratch.Of(0) + 256);
  EXPECT_LE(scratch.shared() + 64, given.data() + given.size());
  std::vector<int> seen(3);
  scratch.Run(SequentialExecutor(), 3, [&](std::int64_t item, std::byte* own) {
    EXPECT_TRUE(own == scratch.Of(0) || own == scratch.Of(1));
    ++seen[static_cast<std::size_t>(item)];
  });
  EXPECT_EQ(seen, (std::vector<int>{1, 1, 1}));
}

TEST(RowViews, RowsStatesAndConstants) {
  const Tensor rows(DType::kFloat32, {2, 5, 3, 4}), a(DType::kFloat64, {3, 4, 2});
  const float* const data = static_cast<const float*>(rows.data());
  const Rows some = RowsOf(rows, Sequence{1, 2, 3}, 1, 2);
  EXPECT_EQ(some.data, data + ((1 * 5 + 2) * 3 + 1) * 4 + 2);
  EXPECT_EQ(some.stride, 12);
  const Rows state = StateOf(rows, 1, 3);  // as [N, H, rows, columns]
  EXPECT_EQ(state.data, data + (1 * 5 + 3) * 12);
  EXPECT_EQ(state.stride, 4);
  const Rows constant = ConstantOf(a, 2, 1);
  EXPECT_EQ(constant.data, static_cast<double*>(a.data()) + (2 * 4 + 1) * 2);
  EXPECT_EQ(constant.stride, 2);
  EXPECT_EQ(Moved(constant, 3).data, static_cast<double*>(constant.data) + 3);
  EXPECT_FALSE(RowsOf({}, Sequence{0, 0, 1}, 0));
  EXPECT_FALSE(StateOf({}, 0, 0));
  EXPECT_FALSE(ConstantOf({}, 0));
}

TEST(PartialSums, TotalsInOrder) {
  ScratchLayout counter(nullptr);
  EXPECT_FALSE(PartialSums(counter, false, DType::kFloat32, 4, 2, 3));
  EXPECT_EQ(counter.bytes(), 0u);
  alignas(64) std::byte memory[128];
  ScratchLayout layout(memory);
  const PartialSums sums(layout, true, DType::kFloat32, 4, 2, 3);
  EXPECT_EQ(layout.bytes(), 128u);
  for (int i = 0; i < 4 * 2 * 3; ++i) reinterpret_cast<float*>(memory)[i] = static_cast<float>(i);
  std::array<double, 3> total;
  sums.Total(1, 2, 2, 1, total.data());  // parts 1 and 3, row 1
  EXPECT_EQ(total, (std::array<double, 3>{9 + 21, 10 + 22, 11 + 23}));
  EXPECT_EQ(static_cast<void*>(sums.RowsAt(1, 1, 2).data), sums.At(1, 1, 2));
  EXPECT_EQ(sums.RowsAt(1, 1).stride, 3);
}

}  // namespace
}  // namespace ttr::common

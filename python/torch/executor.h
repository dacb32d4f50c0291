/// The library's tasks on PyTorch's threads: as many as torch.get_num_threads() says.
#pragma once

#include <cstdint>
#include <functional>

#include "ttr/executor.h"

namespace ttr::pytorch {

/// Made for one call, which sees one number of threads from its beginning to its end. Inside of
/// another parallel region PyTorch runs the tasks in sequence, on the calling thread.
class TorchExecutor final : public Executor {
 public:
  TorchExecutor();
  int threads() const override { return threads_; }
  void Run(std::int64_t count, const std::function<void(std::int64_t)>& task) override;

 private:
  int threads_;
};

}  // namespace ttr::pytorch

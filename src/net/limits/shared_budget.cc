#include "src/net/limits/shared_budget.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace layercast {

SharedBudget& SharedBudget::OfProcess() {
  static SharedBudget budget;
  return budget;
}

std::uint64_t SharedBudget::NextNumber() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

SharedBudget::Share::Share(SharedBudget& budget, std::optional<std::uint64_t> most)
    : budget_(budget), number_(NextNumber()) {
  const std::lock_guard lock(budget_.mutex_);
  budget_.all_.push_back({.number = number_, .process = ::getpid(), .most = most});
}

SharedBudget::Share::~Share() {
  const std::lock_guard lock(budget_.mutex_);
  std::erase_if(budget_.all_, [this](const Reported& one) { return one.number == number_; });
}

SharedBudget::Verdict SharedBudget::Share::Report(std::vector<Holder> holders, std::uint64_t unhandled) {
  const std::lock_guard lock(budget_.mutex_);
  const pid_t here = ::getpid();
  std::optional<std::uint64_t> least;
  std::uint64_t together = 0;
  std::vector<Holder> all;
  for (Reported& one : budget_.all_) {
    if (one.process != here) continue;
    if (one.number == number_) {
      one.holders = holders;
      one.unhandled = unhandled;
    }
    if (one.most) least = std::min(least.value_or(*one.most), *one.most);
    together += one.unhandled;
    all.insert(all.end(), one.holders.begin(), one.holders.end());
  }
  Verdict verdict{.most = least.value_or(kUsual)};
  verdict.tight = together > verdict.most / 4;
  verdict.cut = HoldersToCut(std::move(all), verdict.most);
  std::erase_if(verdict.cut, [&](std::uint64_t number) {
    return std::ranges::find(holders, number, &Holder::number) == holders.end();
  });
  return verdict;
}

}  // namespace layercast

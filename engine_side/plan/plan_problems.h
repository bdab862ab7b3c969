// Why a manifest does not fit a model: what the load plan's checks find, and how it reads. Value.
#pragma once

#include <string>
#include <vector>

namespace layercast {

// One line for each thing wrong. What does not fit comes first: other tensors may be missing because of it.
struct PlanProblems {
  std::vector<std::string> misfits;     // "layer ...: 'a' expected [8, 4] bf16, got [8, 2] bf16"
  std::vector<std::string> missing;     // names of tensors that should be there
  std::vector<std::string> repeated;    // "'a' and 'b' both fill ..."
  std::vector<std::string> unexpected;  // "There is no module or parameter named ..."

  bool empty() const { return misfits.empty() && missing.empty() && repeated.empty() && unexpected.empty(); }
  // Every problem, each with the words that say of which kind it is.
  std::vector<std::string> Lines() const;
  // All kinds in one text, at most 20 of each and how many more there are.
  std::string Summary() const;
};

}  // namespace layercast

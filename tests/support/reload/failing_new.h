// Allocations of C++ that fail. Of the one test program whose `operator new` this is (failing_new.cc).
#pragma once

#include <cstddef>

namespace layercast::testing {

// As long as it lives, one allocation of this thread fails: the one after the first `before`. Resource; one at a time.
class FailingNew {
 public:
  explicit FailingNew(std::size_t before);
  ~FailingNew();
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;

  bool failed() const;
};

}  // namespace layercast::testing

// The timeline of a sync as a file that Perfetto and Chrome open (the Trace Event Format, JSON). Used by controllers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/unique_fd.h"
#include "src/trace/process_trace.h"

namespace layercast {

// The file's text. All spans are by one clock; times in the file count from `start_ns`. Each process is a row of its
// own, with a number that is none of the system's, since those of several hosts may be the same; each lane is a thread
// of it. `facts` are of the whole.
std::string ChromeTrace(std::span<const ProcessTrace> processes, std::int64_t start_ns,
                        const std::vector<std::pair<std::string, std::string>>& facts);

// A file that will hold a trace. It is made at once, so that what is wrong with its name is known before anything is
// traced. Resource.
class TraceFile {
 public:
  // Throws kInvalidArgument, naming the file, if it cannot be written.
  explicit TraceFile(std::string path);
  // Throws kUnavailable, naming the file.
  void Write(const std::string& text);

 private:
  const std::string path_;
  UniqueFd file_;
};

}  // namespace layercast

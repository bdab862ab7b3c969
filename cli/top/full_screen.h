// A terminal that is drawn on as a whole, on its second screen, so that what was there before is there again
// afterwards. Used by `layercast top`.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "src/base/unique_fd.h"

namespace layercast::cli {

// Whether standard output is a terminal that knows the sequences.
bool StandardOutputIsTerminal();

// Resource; main's thread only, made before there are others. The terminal is put back by the destructor, and by the
// signals of a program that crashes. Ctrl-Z does nothing meanwhile.
class FullScreen {
 public:
  struct Size {
    std::size_t columns = 80;
    std::size_t rows = 24;
  };

  FullScreen();
  ~FullScreen();
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  Size size() const;
  // The lines, from the top of the screen on; those that it has no room for are left out. In one write, so that no half
  // of a picture is seen.
  void Draw(const std::vector<std::string>& lines);
  // Is readable once the terminal has got another size. TakeResize makes it wait for the next one.
  int resized() const { return resized_.get(); }
  void TakeResize();

 private:
  const UniqueFd resized_;
};

}  // namespace layercast::cli

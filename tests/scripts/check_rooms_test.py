"""Each rule of scripts/check_rooms finds a deliberate violation of it, in a small house that is in order otherwise."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check_rooms"
ROOMS = """
include/layercast | | | | values and doors
src/low | include/layercast | json | | below
src/high | src/low | | cold | above
trainer_side | src/high | | | a side
engine_side/reload | src/high | | | the other side
VALUES | value.h
"""
ATTIC = '#include "src/low/ground.h"\n'
FILES = {
    "cmake/rooms.txt": ROOMS,
    "CONTRIBUTING.md": "# Rooms\n<!-- rooms: scripts/check_rooms --print -->\n<!-- end of rooms -->\n",
    "include/layercast/value.h": "",
    "include/layercast/door.h": "",
    "src/low/ground.h": '#include "layercast/value.h"\n',
    "src/low/ground.cc": '#include "src/low/ground.h"\n#include <nlohmann/json.hpp>\n',
    "src/high/attic.h": ATTIC,
    "trainer_side/door.cc": '#include "layercast/door.h"\n#include "src/high/attic.h"\n',
    "engine_side/reload/commit/commit.cc": '#include "src/high/attic.h"\nvoid Commit() { WriteCaptured(1); }\n',
    "tests/attic_test.cc": '#include "src/high/attic.h"\n',
}


class CheckRooms(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.root = pathlib.Path(kept.name)
        for path, text in FILES.items():
            self.write(path, text)
        self.run_script("--print")

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def add_to_table(self, line):
        self.write("cmake/rooms.txt", (self.root / "cmake/rooms.txt").read_text() + line + "\n")

    def run_script(self, *arguments):
        return subprocess.run([sys.executable, SCRIPT, "--root", self.root, *arguments], capture_output=True, text=True)

    def expect(self, *problems):
        """The script names exactly these, each a beginning of one of its lines, and fails if there are any."""
        done = self.run_script()
        lines = done.stdout.splitlines()[:-1]
        self.assertEqual(len(lines), len(problems), done.stdout + done.stderr)
        for line, problem in zip(lines, problems):
            self.assertTrue(line.startswith(problem), f"{line!r} does not begin with {problem!r}")
        self.assertEqual(done.returncode, 1 if problems else 0)

    def test_a_house_in_order(self):
        self.expect()

    def test_an_arrow_that_points_up(self):
        self.write("src/low/ground.h", '#include "src/high/attic.h"\n')
        self.expect("R1 src/low/ground.h: src/low may not use src/high (src/high/attic.h)")

    def test_an_arrow_between_the_sides(self):
        self.write("trainer_side/snapshot.h", "")
        self.write("engine_side/reload/stage.h", '#include "trainer_side/snapshot.h"\n')
        self.expect("R1 engine_side/reload/stage.h: engine_side/reload may not use trainer_side")

    def test_an_arrow_that_only_a_public_header_hides(self):
        self.write("engine_side/reload/stage.h", '#include "layercast/door.h"\n')
        self.expect("R1 engine_side/reload/stage.h: engine_side/reload may not use trainer_side, where layercast/door.h")

    def test_a_folder_that_is_no_room(self):
        self.write("src/cellar/wine.h", "")
        self.expect("R1 src/cellar/wine.h: its folder is in no room")

    def test_rooms_that_may_use_each_other(self):
        self.write("cmake/rooms.txt", ROOMS.replace("src/low | include/layercast", "src/low | src/high"))
        self.expect("R1 cmake/rooms.txt: src/low may use src/high", "R1 cmake/rooms.txt: src/high may use src/low")

    def test_a_room_that_is_not_there(self):
        self.add_to_table("src/roof | src/sky | | | nothing")
        self.expect("R1 cmake/rooms.txt: src/roof may use src/sky, which is no room")

    def test_a_room_that_needs_less_than_it_may_use(self):
        self.write("engine_side/reload/commit/commit.cc", "")
        self.expect("R1 cmake/rooms.txt: engine_side/reload needs no src/high")
        self.write("engine_side/reload/commit/commit.cc", '#include "src/high/attic.h"\n')
        self.write("src/low/ground.cc", '#include "src/low/ground.h"\n')
        self.expect("R5 cmake/rooms.txt: src/low includes nothing of json")

    def test_a_door_that_src_opens(self):
        self.write("include/layercast/other_door.h", "")
        self.write("src/low/ground.h", '#include "layercast/other_door.h"\n')
        self.expect("R2 src/low/ground.h: layercast/other_door.h is a door")

    def test_a_folder_of_too_many_files(self):
        for number in range(26):
            self.write(f"trainer_side/part_{number}.h", "")
        self.expect("R3 trainer_side: expected at most 25 files, got 27")

    def test_a_file_of_too_many_lines(self):
        self.write("src/high/attic.h", ATTIC + "\n" * 400)
        self.expect("R3 src/high/attic.h: expected at most 400 lines, got 401")

    def test_an_exception_holds_up_to_its_number(self):
        self.add_to_table("EXCEPTION | src/high/attic.h | 410 | a table")
        self.write("src/high/attic.h", ATTIC + "\n" * 409)
        self.expect()
        self.write("src/high/attic.h", ATTIC + "\n" * 410)
        self.expect("R3 src/high/attic.h: expected at most 410 lines, got 411")

    def test_an_exception_that_is_not_needed_any_more(self):
        self.add_to_table("EXCEPTION | src/high/attic.h | 410 | a table")
        self.expect("R3 cmake/rooms.txt: src/high/attic.h needs no exception any more")

    def test_a_stem_that_repeats(self):
        self.write("trainer_side/attic.h", "")
        self.expect("R4 attic: there is one in each of src/high, trainer_side")
        self.add_to_table("EXCEPTION | attic | | not yet renamed")
        self.expect()

    def test_an_outside_header_in_a_room_that_has_none(self):
        self.write("src/high/attic.h", ATTIC + "#include <nlohmann/json.hpp>\n")
        self.expect("R5 src/high/attic.h: src/high is not among the rooms that may include json")

    def test_a_write_to_captured_buffers_elsewhere(self):
        self.write("engine_side/reload/pipeline/pipeline.cc", "void Write() { WriteCaptured(1); }\n")
        self.expect("R5 engine_side/reload/pipeline/pipeline.cc: writes captured buffers")

    def test_a_table_that_contributing_does_not_show(self):
        self.add_to_table("src/roof | src/high | | | new")
        self.write("src/roof/tile.h", '#include "src/high/attic.h"\n')
        self.expect("CONTRIBUTING.md: its table of rooms is not that")


if __name__ == "__main__":
    unittest.main()

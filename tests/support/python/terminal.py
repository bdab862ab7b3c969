"""A terminal that a program's standard error is: what it draws there, and what stays. Used by the tests of progress
bars."""

import fcntl
import os
import select
import struct
import subprocess
import termios
import threading
import time

WIPE = "\r\x1b[K"


class Screen:
    """What a terminal of so many columns shows after it got that text: the sequences that the program uses, no others."""

    def __init__(self, columns, text):
        self.columns, self.lines, self.at, self.wrapped = columns, [""], 0, False
        while text:
            if text.startswith("\x1b[K"):
                self.lines[-1] = self.lines[-1][:self.at]
                text = text[3:]
                continue
            self._put(text[0])
            text = text[1:]

    def _put(self, letter):
        if letter == "\n":
            self.lines.append(" " * self.at)
        elif letter == "\r":
            self.at = 0
        else:
            assert letter.isprintable(), repr(letter)
            if self.at == self.columns:
                self.lines.append("")
                self.at, self.wrapped = 0, True
            self.lines[-1] = self.lines[-1][:self.at].ljust(self.at) + letter + self.lines[-1][self.at + 1:]
            self.at += 1


class OnTerminal:
    """A command whose standard error is a terminal. Its standard output is a pipe."""

    def __init__(self, command, columns, within=80):
        self.command, self.columns, self._within = [str(word) for word in command], columns, within
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave,
                                        text=True, start_new_session=True, env={**os.environ, "TERM": "xterm"})
        os.close(slave)
        self._read = b""
        self._reader = threading.Thread(target=self._drain)
        self._reader.start()

    def _drain(self):
        while True:
            try:
                some = os.read(self._master, 65536)
            except OSError:  # nobody has the other end any more
                return
            if not some:
                return
            self._read += some

    @property
    def drawn(self):
        return self._read.decode()

    @property
    def bars(self):
        """Each state of the bar, as it was drawn."""
        return [piece.removesuffix("\r") for piece in self.drawn.split(WIPE) if piece.endswith("\r")]

    def await_bar(self, condition):
        """The first bar for which that holds."""
        deadline = time.monotonic() + self._within
        while True:
            for bar in self.bars:
                if condition(bar):
                    return bar
            assert time.monotonic() < deadline and self.process.poll() is None, f"{self.command}: {self.drawn!r}"
            time.sleep(0.02)

    def line_of_output(self):
        readable, _, _ = select.select([self.process.stdout], [], [], self._within)
        return self.process.stdout.readline() if readable else ""

    def end(self):
        """(exit status, standard output), when it has ended and the terminal has everything."""
        output, _ = self.process.communicate(timeout=self._within)
        self._reader.join(self._within)
        return self.process.returncode, output

    def left(self):
        """The lines that the terminal shows now."""
        screen = Screen(self.columns, self.drawn)
        return [line.rstrip() for line in screen.lines if line.strip()]

    def kill(self):
        try:
            os.killpg(self.process.pid, 9)
        except ProcessLookupError:
            pass
        self.process.wait()
        self._reader.join(self._within)
        os.close(self._master)

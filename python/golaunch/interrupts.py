"""A lock that a signal's handler does not interrupt.

Python runs handlers in the main thread, between any two of its steps. A handler that raises an
exception, such as the handler of ^C, ends the code that runs there, and would leave the work under
a lock half done. So while the main thread has such a lock, signals are noted, and their handlers
are called when the thread releases the lock; a signal ends a wait.
"""

import _signal
import _thread
import os
import sys
import threading

_NUMBERS = sorted(_signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP})


class _Signalled(BaseException):
    """Ends a wait, because a signal was noted."""


class _Deferral:
    """Handlers of signals that are called later. The main thread has the only object."""

    def __init__(self):
        self._depth = 0
        self._waits = False
        self._noted = []
        self._seen, self._handlers = None, []  # all handlers at the last check, and Python's among them, by number
        self._held = []  # the replaced handlers
        self._note = self._handle

    def hold(self):
        if not self._depth:
            try:
                self._replace()
            except BaseException:  # the handler was not replaced yet
                self._restore()
                raise
        self._depth += 1

    def release(self):
        self._depth -= 1
        if not self._depth:
            try:
                self._restore()
            finally:
                if self._noted:
                    noted, self._noted = list(dict.fromkeys(self._noted)), []
                    self._call(noted)

    def wait(self, wait, *args):
        """Waits in a function of C. Returns its result, or returns when a signal has come."""
        try:
            try:
                self._waits = True
                return None if self._noted else wait(*args)
            finally:
                self._waits = False
        except _Signalled:
            return None

    def _replace(self):
        seen = list(map(_signal.getsignal, _NUMBERS))
        if seen != self._seen:
            self._handlers = [(n, h) for n, h in zip(_NUMBERS, seen) if callable(h)]
            self._seen = seen
        for number, handler in self._handlers:
            self._held.append((number, handler))
            _signal.signal(number, self._note)

    def _restore(self):
        while self._held:
            number, handler = self._held[-1]
            if _signal.getsignal(number) is self._note:
                _signal.signal(number, handler)
            self._held.pop()

    def _handle(self, number, frame):
        if self._depth:
            self._noted.append(number)
            if self._waits:
                self._waits = False
                raise _Signalled()
        else:  # the other handlers are being replaced, or restored
            for held, handler in self._held:
                if held == number:
                    handler(number, frame)

    def _call(self, noted):
        """Calls handlers one after another, even if one raises."""
        number = noted.pop(0)
        try:
            handler = _signal.getsignal(number)
            if callable(handler):
                handler(number, sys._getframe())
        finally:
            if noted:
                self._call(noted)


_DEFERRAL = _Deferral()


def _forked():
    """In a child after a fork. The child's main thread may have been any thread of the parent."""
    _DEFERRAL._depth, _DEFERRAL._waits, _DEFERRAL._noted = 0, False, []
    _DEFERRAL._restore()


os.register_at_fork(after_in_child=_forked)


def _is_main():
    return _thread.get_ident() == threading.main_thread().ident


class Deferred:
    """While a block of `with Deferred():` runs, handlers of signals wait."""

    def __enter__(self):
        if _is_main():
            _DEFERRAL.hold()

    def __exit__(self, *_):
        if _is_main():
            _DEFERRAL.release()


class Lock:
    """A reentrant lock with a condition."""

    def __init__(self):
        self.raw = threading.RLock()
        self._waiting = []

    def __enter__(self):
        if _is_main():
            _DEFERRAL.hold()
        self.raw.acquire()

    def __exit__(self, *_):
        self.raw.release()
        if _is_main():
            _DEFERRAL.release()

    def wait(self, timeout=None):
        """Releases the lock until a notification or a signal. Returns False for a signal."""
        waiter = _thread.allocate_lock()
        waiter.acquire()
        self._waiting.append(waiter)
        going = self.apart(waiter.acquire, True, -1 if timeout is None else min(timeout, _thread.TIMEOUT_MAX)) is not None
        if waiter in self._waiting:
            self._waiting.remove(waiter)
        return going

    def apart(self, wait, *args):
        """Releases the lock and waits in a function of C. Returns its result, or None for a signal.
        """
        state = self.raw._release_save()
        try:
            return _DEFERRAL.wait(wait, *args) if _is_main() else wait(*args)
        finally:
            self.raw._acquire_restore(state)

    def notify_all(self):
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.release()

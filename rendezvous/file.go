package rendezvous

import "github.com/golaunch/golaunch/rendezvous/internal/log"

// File keeps the log of a cluster's coordinator, for one that is started again.
type File = log.File

// OpenFile opens the log in a directory, which it makes at first use, mode 0700. The error says so when another coordinator has it open, or
// when another version of golaunch wrote it.
func OpenFile(dir string) (*File, error) { return log.Open(dir) }

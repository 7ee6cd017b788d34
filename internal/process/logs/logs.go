// Package logs keeps the output of ranks in log files.
//
// Each stream of a rank is a pipe that one goroutine reads. It writes the raw bytes to the stream's
// log file and then hands them to the console as prefixed lines, so a line that the console lost is
// still in the file. A full disk never holds a rank up. A console whose reader takes nothing holds
// it up for at most a second. Memory is bounded whatever a rank writes: about 140 KiB per stream.
//
// A [Reader] reads the files back in chunks, also while they are written. Readers never hold a rank
// up.
//
// The package needs Linux: FIONREAD says how much a pipe holds, so a flush neither sleeps nor waits
// for an end of file that a grandchild may delay.
package logs

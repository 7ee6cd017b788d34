// Package logs keeps the output of ranks in log files.
//
// Each stream of a rank is a pipe that one goroutine reads. It writes the raw bytes to the stream's
// log file and then hands them to the console as prefixed lines, so a line that the console lost is
// still in the file. A full disk never delays a rank. A console whose reader takes nothing delays
// it by at most a second. Memory is bounded to about 140 KiB per stream, no matter what a rank
// writes.
//
// A [Reader] reads the files back in chunks, also while they are written. Readers never delay a
// rank.
//
// The package needs Linux: FIONREAD says how much a pipe holds, so a flush neither sleeps nor waits
// for an end of file that a grandchild may delay.
package logs

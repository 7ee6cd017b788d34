package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// shell runs commands one after another in an environment that takes long to enter.
type shell struct {
	in     io.WriteCloser
	out    *os.File
	answer *bufio.Reader
	// said has the output of the last command.
	said string
}

// open starts a shell, which ends with a scope or a benchmark. The output of its commands goes to a
// file in a directory.
func open(s interface{ Cleanup(f func()) }, cmd *exec.Cmd, dir string) (*shell, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = w
	err = cmd.Start()
	w.Close()
	if err != nil {
		out.Close()
		return nil, err
	}
	s.Cleanup(func() {
		in.Close()
		end := time.AfterFunc(ending, func() { _ = cmd.Process.Kill() }) // it may end at this moment
		defer end.Stop()
		_ = cmd.Wait() // the end of the last command is already known
		out.Close()
	})
	sh := &shell{in, out, bufio.NewReader(out), filepath.Join(dir, "said")}
	_, err = sh.run(context.Background(), time.Minute, "true")
	return sh, err
}

// run times a command, which has a limit. After any error that is not the error of the command, the
// shell cannot be used.
func (s *shell) run(ctx context.Context, limit time.Duration, line string) (took time.Duration, err error) {
	begin := time.Now()
	if err := s.out.SetReadDeadline(begin.Add(limit)); err != nil {
		return 0, err
	}
	defer context.AfterFunc(ctx, func() { _ = s.out.SetReadDeadline(time.Unix(1, 0)) })()
	if _, err := fmt.Fprintf(s.in, "{ %s; } </dev/null >%s 2>&1; echo $?\n", line, s.said); err != nil {
		return 0, fmt.Errorf("%s: %w", line, err)
	}
	code, err := s.answer.ReadString('\n')
	took = time.Since(begin)
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil { // the next command begins when this command has ended
		_ = s.out.SetReadDeadline(time.Now().Add(giveUp)) // as above
		_, later := s.answer.ReadString('\n')
		err = errors.Join(fmt.Errorf("it had not ended after %v", limit), later)
	}
	if err != nil {
		return 0, err
	}
	if code != "0\n" {
		return 0, fmt.Errorf("exit code %s: %s", code[:len(code)-1], lastWords(s.said))
	}
	return took, nil
}

package controller

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/golaunch/golaunch/launcher"
)

// questions reads the program's questions, one a line.
type questions struct{ *bufio.Reader }

func questionsOf(conn io.Reader) questions { return questions{bufio.NewReaderSize(conn, 64<<10)} }

// next returns the next question. If the question is too long, it returns only the number, and the
// reason to refuse the question.
func (r questions) next() (q question, tooLong, err error) {
	line, size, err := r.line()
	if err != nil {
		return q, nil, err
	}
	if size > maxLine {
		q.ID, err = numberOf(line)
		return q, fmt.Errorf("%w: the question has %d bytes, %d at most; a job's command and variables may have 512 KiB", launcher.ErrUsage, size, maxLine), err
	}
	err = json.Unmarshal(line, &q)
	return q, nil, err
}

// line reads a line, and returns at most maxLine bytes of it and its length.
func (r questions) line() (line []byte, size int, err error) {
	for {
		part, err := r.ReadSlice('\n')
		size += len(part)
		line = append(line, part[:min(len(part), maxLine-len(line))]...)
		switch {
		case err == nil:
			return line, size, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, size, err
		}
	}
}

// numberOf returns the number of a question whose end is missing. The number comes first.
func numberOf(line []byte) (id int, err error) {
	in := json.NewDecoder(bytes.NewReader(line))
	for range 2 { // the brace, and the name
		if _, err := in.Token(); err != nil {
			return 0, err
		}
	}
	err = in.Decode(&id)
	return id, err
}

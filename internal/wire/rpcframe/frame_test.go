package rpcframe_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/golaunch/golaunch/internal/wire/rpcframe"
)

// TestRound checks that reading returns the written frames in order, and then io.EOF.
func TestRound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frames := rapid.SliceOf(rapid.Custom(func(t *rapid.T) rpcframe.Frame {
			return rpcframe.Frame{
				Kind: rpcframe.Kind(rapid.ByteRange(byte(rpcframe.Hello), byte(rpcframe.Bye)).Draw(t, "kind")), Codec: rapid.ByteRange(rpcframe.Pickle, rpcframe.Raw).Draw(t, "codec"),
				Call: rapid.Uint64().Draw(t, "call"), Name: rapid.StringN(0, 20, rpcframe.MaxName).Draw(t, "name"), Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
			}
		})).Draw(t, "frames")
		var all bytes.Buffer
		for _, f := range frames {
			if err := rpcframe.Write(&all, f); err != nil {
				t.Fatal(err)
			}
		}
		whole := all.Len()
		in := bufio.NewReader(&all)
		for _, f := range frames {
			got, err := rpcframe.Read(in, rpcframe.MaxBody)
			if len(f.Body) == 0 {
				f.Body = []byte{}
			}
			if err != nil || !reflect.DeepEqual(got, f) {
				t.Fatalf("%+v, %v, want %+v", got, err, f)
			}
		}
		if _, err := rpcframe.Read(in, rpcframe.MaxBody); !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("after %d bytes: %v", whole, err)
		}
	})
}

func TestWhatMakesNoSense(t *testing.T) {
	if err := rpcframe.Write(io.Discard, rpcframe.Frame{Kind: rpcframe.Call, Name: strings.Repeat("n", rpcframe.MaxName+1)}); err == nil {
		t.Error("a long name is written")
	}
	var whole bytes.Buffer
	if err := rpcframe.Write(&whole, rpcframe.Frame{Kind: rpcframe.Call, Name: "name", Body: []byte("body")}); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func([]byte){
		"kind":    func(b []byte) { b[0] = byte(rpcframe.Ack) + 1 },
		"no kind": func(b []byte) { b[0] = 0 },
		"codec":   func(b []byte) { b[1] = 0x80 },
		"buffers": func(b []byte) { b[2] = 1 },
		"name":    func(b []byte) { binary.LittleEndian.PutUint32(b[4:], 1<<20) },
		"body":    func(b []byte) { binary.LittleEndian.PutUint64(b[16:], 1<<40) },
	} {
		b := bytes.Clone(whole.Bytes())
		change(b)
		if _, err := rpcframe.Read(bufio.NewReader(bytes.NewReader(b)), 100); !errors.Is(err, rpcframe.ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := 1; n < whole.Len(); n++ {
		if _, err := rpcframe.Read(bufio.NewReader(bytes.NewReader(whole.Bytes()[:n])), 100); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes of %d: %v", n, whole.Len(), err)
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// scope has everything that a piece of work starts and must end. It has the methods of a test that
// package slurmtest needs, so that a real Slurm can run outside of tests.
type scope struct {
	testing.TB // nil: only the methods below are called

	ctx   context.Context
	outer context.Context
	ends  []func()
	wrong []error
}

// fatal ends a scope at once.
type fatal struct{ error }

// within runs f, and then the functions that f gave to Cleanup, the last first.
func within(ctx context.Context, f func(s *scope) error) (err error) {
	outer := ctx
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	s := &scope{ctx: ctx, outer: outer}
	s.try(func() {
		if err := f(s); err != nil {
			s.wrong = append(s.wrong, err)
		}
	})
	cancel() // the context ends before the cleanups, as in a test
	for len(s.ends) > 0 {
		last := s.ends[len(s.ends)-1]
		s.ends = s.ends[:len(s.ends)-1]
		s.try(last)
	}
	return errors.Join(s.wrong...)
}

func (s *scope) try(f func()) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case fatal:
			s.wrong = append(s.wrong, r.error)
		default:
			panic(r)
		}
	}()
	f()
}

// Logf prints a possible explanation of a failure, unless the run was interrupted.
func (s *scope) Logf(f string, a ...any) {
	if s.outer.Err() == nil {
		fmt.Printf(f+"\n", a...)
	}
}

func (s *scope) Helper()                   {}
func (s *scope) Context() context.Context  { return s.ctx }
func (s *scope) Cleanup(f func())          { s.ends = append(s.ends, f) }
func (s *scope) Failed() bool              { return len(s.wrong) > 0 }
func (s *scope) Error(a ...any)            { s.wrong = append(s.wrong, errors.New(fmt.Sprint(a...))) }
func (s *scope) Errorf(f string, a ...any) { s.wrong = append(s.wrong, fmt.Errorf(f, a...)) }
func (s *scope) Fatal(a ...any)            { panic(fatal{errors.New(fmt.Sprint(a...))}) }
func (s *scope) Fatalf(f string, a ...any) { panic(fatal{fmt.Errorf(f, a...)}) }
func (s *scope) Skip(a ...any)             { s.Fatal(a...) }

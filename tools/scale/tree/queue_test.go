package main

import (
	"slices"
	"testing"
)

// TestOrder has things happen in the order of time, and then in that in which they were said.
func TestOrder(t *testing.T) {
	var c clock
	var got []int
	for i, at := range []float64{2, 1, 2, 0, 1, 2} {
		c.at(at, func() { got = append(got, i) })
	}
	if c.run(); !slices.Equal(got, []int{3, 1, 4, 0, 2, 5}) || c.now != 2 {
		t.Errorf("%v until %v", got, c.now)
	}
}

// TestUrgent has what is urgent go before what waits, and what is at work end.
func TestUrgent(t *testing.T) {
	var c clock
	one := cores{clock: &c, idle: 1}
	var got []string
	for _, task := range []struct {
		name   string
		urgent bool
	}{{"first", false}, {"second", false}, {"urgent", true}, {"urgent too", true}} {
		one.do(1, task.urgent, func() { got = append(got, task.name) })
	}
	if c.run(); !slices.Equal(got, []string{"first", "urgent", "urgent too", "second"}) || c.now != 4 || one.used != 4 {
		t.Errorf("%v until %v, with %v s of a core", got, c.now, one.used)
	}
}

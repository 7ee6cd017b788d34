//go:build race

package main

import "time"

func init() { shortestLease = 10 * time.Second }

//go:build race

package main

import "time"

func init() { shortestLease = 3 * time.Second }

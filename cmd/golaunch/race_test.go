//go:build race

package main

import "time"

func init() { shortestLease = 5 * time.Second }

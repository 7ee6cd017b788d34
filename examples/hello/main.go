// Hello is the smallest distributed program: its ranks meet at torch's store, at
// MASTER_ADDR:MASTER_PORT, and add up their ranks. It needs neither a GPU nor Python, and fails
// when the sum is wrong.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/netip"
	"time"

	"github.com/golaunch/golaunch/rankenv"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

const patience = 30 * time.Second

func main() {
	log.SetFlags(0)
	me, err := rankenv.Current()
	if err != nil {
		log.Fatal(err)
	}
	sum, err := allReduce(me, int64(me.Rank))
	if err != nil {
		log.Fatalf("rank %d: %v", me.Rank, err)
	}
	want := int64(me.WorldSize) * int64(me.WorldSize-1) / 2
	if sum != want {
		log.Fatalf("rank %d: the ranks add up to %d, not %d", me.Rank, sum, want)
	}
	fmt.Printf("hello from rank %d of %d (local rank %d on node %d): the ranks add up to %d\n",
		me.Rank, me.WorldSize, me.LocalRank, me.NodeRank, sum)
}

// allReduce adds value up over all ranks.
func allReduce(me rankenv.Info, value int64) (int64, error) {
	addr, err := netip.ParseAddrPort(me.Master())
	if err != nil {
		return 0, err
	}
	if me.Rank == 0 && !me.StoreHosted {
		l, err := net.Listen("tcp", me.Master())
		if err != nil {
			return 0, err
		}
		store, err := tcpstore.Serve(l, tcpstore.Options{})
		if err != nil {
			return 0, err
		}
		defer store.Close()
	}
	ctx := context.Background()
	client, err := tcpstore.Dial(ctx, addr, patience)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	if _, err := client.Add(ctx, "sum", value); err != nil {
		return 0, err
	}
	if err := client.Barrier(ctx, "all have added", me.WorldSize); err != nil {
		return 0, err
	}
	sum, err := client.Add(ctx, "sum", 0)
	if err != nil {
		return 0, err
	}
	return sum, client.Barrier(ctx, "all know the sum", me.WorldSize) // rank 0 may serve the store, so it must not exit first
}

// Hello is the smallest distributed program: its ranks meet at MASTER_ADDR:MASTER_PORT and add up their ranks. It needs neither a
// GPU nor Python, and fails when the sum is not what it must be.
package main

import (
	"encoding/binary"
	"fmt"
	"log"
	"net"
	"time"

	"github.com/golaunch/golaunch/rankenv"
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

// allReduce adds value up over all ranks: rank 0 gathers and answers.
func allReduce(me rankenv.Info, value int64) (int64, error) {
	if me.Rank == 0 {
		return gather(me, value)
	}
	conn, err := dial(me.Master())
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := binary.Write(conn, binary.LittleEndian, value); err != nil {
		return 0, err
	}
	var sum int64
	return sum, binary.Read(conn, binary.LittleEndian, &sum)
}

func gather(me rankenv.Info, sum int64) (int64, error) {
	l, err := net.Listen("tcp", me.Master())
	if err != nil {
		return 0, err
	}
	defer l.Close()
	conns := make([]net.Conn, 0, me.WorldSize-1)
	for range me.WorldSize - 1 {
		conn, err := l.Accept()
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		var value int64
		if err := binary.Read(conn, binary.LittleEndian, &value); err != nil {
			return 0, err
		}
		sum += value
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		if err := binary.Write(conn, binary.LittleEndian, sum); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

// dial waits for rank 0, which may start later than this rank.
func dial(addr string) (net.Conn, error) {
	deadline := time.Now().Add(patience)
	for {
		conn, err := net.DialTimeout("tcp", addr, patience)
		if err == nil || time.Now().After(deadline) {
			return conn, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

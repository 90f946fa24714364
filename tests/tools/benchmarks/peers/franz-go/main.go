// One run of franz-go, as tests/tools/benchmarks/client.py is one of a Python client: a task as JSON from standard input, one line of JSON out.
// It knows the ways stream, mixed, single, herd, paced and tasks, and proves its records by the same sums.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	aroundValue = 512 // bytes of a batch with one record, more than its value
	sampled     = 256 // of so many records of a burst the latency of one is noted, as in the other clients
	tick        = time.Millisecond
)

type task struct {
	Way              string   `json:"way"`
	BootstrapServers string   `json:"bootstrap_servers"`
	Topics           []string `json:"topics"`
	Partitions       int      `json:"partitions"`
	Records          int      `json:"records"`
	WarmUp           int      `json:"warm_up"`
	Keys             int      `json:"keys"`
	ValueBytes       int32    `json:"value_bytes"`
	Tasks            int      `json:"tasks"`
	Load             int      `json:"load"`
	Values           []string `json:"values"` // instead of equal ones
	values           [][]byte
	Settings         struct {
		LingerMs    int                    `json:"linger_ms"`
		BatchSize   int32                  `json:"batch_size"`
		Compression string                 `json:"compression"`
		Own         map[string]interface{} `json:"own"`
	} `json:"settings"`
}

type told struct {
	Records    int     `json:"records"`
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"`
	PeakMib    float64 `json:"peak_mib"`
	GrowthMib  float64 `json:"growth_mib"`
	P50Ms      float64 `json:"p50_ms"`
	P99Ms      float64 `json:"p99_ms"`
	Counts     []int64 `json:"counts"`
	Offsets    int64   `json:"offsets"`
	Build      string  `json:"build"`
}

type tally struct {
	mutex     sync.Mutex
	counts    []int64
	offsets   int64
	latencies []float64
	failure   error
}

// note is told that a record was acknowledged, now.
func (found *tally) note(began time.Time) {
	took := time.Since(began).Seconds()
	found.mutex.Lock()
	found.latencies = append(found.latencies, took)
	found.mutex.Unlock()
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func main() {
	var wanted task
	must(json.NewDecoder(os.Stdin).Decode(&wanted))
	wanted.values = valuesOf(&wanted)
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(wanted.BootstrapServers, ",")...),
		kgo.RequiredAcks(kgo.AllISRAcks()), // with idempotence, which is its default
		kgo.ProducerLinger(time.Duration(wanted.Settings.LingerMs) * time.Millisecond),
		kgo.ProducerBatchMaxBytes(max(wanted.Settings.BatchSize, wanted.ValueBytes+aroundValue)), // it refuses larger records
		kgo.ProducerBatchCompression(codecs[wanted.Settings.Compression]),
	}
	if value, ok := wanted.Settings.Own["MaxBufferedRecords"]; ok {
		options = append(options, kgo.MaxBufferedRecords(int(value.(float64))))
	}
	client, err := kgo.NewClient(options...)
	must(err)
	defer client.Close()
	ways := map[string]func(*kgo.Client, *task, [][]byte, *tally){
		"stream": stream, "mixed": stream, "single": single, "herd": herd, "paced": paced, "tasks": paces,
	}
	run, known := ways[wanted.Way]
	if !known {
		must(fmt.Errorf("franz-go has no way %q here", wanted.Way))
	}
	cells := len(wanted.Topics) * wanted.Partitions
	before, after := &tally{counts: make([]int64, cells)}, &tally{counts: make([]int64, cells)}
	keys := keysOf(&wanted)
	run(client, &wanted, keys[:wanted.WarmUp], before)
	must(before.failure)
	runtime.GC()
	memory, spent, start := resident(), cpuSeconds(), time.Now()
	run(client, &wanted, keys[wanted.WarmUp:], after)
	result := told{Records: wanted.Records, Seconds: time.Since(start).Seconds(), CPUSeconds: cpuSeconds() - spent, Build: build()}
	must(after.failure)
	result.PeakMib = float64(peak()) / (1 << 20)
	result.GrowthMib = max(0, float64(peak()-memory)/(1<<20))
	result.Counts, result.Offsets = after.counts, after.offsets+before.offsets
	for cell, count := range before.counts {
		result.Counts[cell] += count
	}
	result.P50Ms, result.P99Ms = percentiles(after.latencies)
	must(json.NewEncoder(os.Stdout).Encode(result))
}

// stream sends all with a callback each, then flushes; topics and values take turns.
func stream(client *kgo.Client, wanted *task, keys [][]byte, found *tally) {
	values, cells := wanted.values, cellsOf(wanted)
	delivered := func(record *kgo.Record, err error) {
		found.mutex.Lock()
		if err != nil {
			found.failure = err
		} else {
			found.offsets += record.Offset
			found.counts[cells[record.Topic]+int(record.Partition)]++
		}
		found.mutex.Unlock()
	}
	for number, key := range keys {
		record := &kgo.Record{Topic: wanted.Topics[number%len(wanted.Topics)], Key: key, Value: values[number%len(values)]}
		if number%sampled != 0 {
			client.Produce(context.Background(), record, delivered)
			continue
		}
		began := time.Now()
		client.Produce(context.Background(), record, func(record *kgo.Record, err error) {
			delivered(record, err)
			found.note(began)
		})
	}
	must(client.Flush(context.Background()))
}

// produce sends one record and notes its latency.
func produce(client *kgo.Client, wanted *task, key []byte, found *tally) {
	began := time.Now()
	record := &kgo.Record{Topic: wanted.Topics[0], Key: key, Value: wanted.values[0]}
	client.Produce(context.Background(), record, func(record *kgo.Record, err error) {
		found.note(began)
		found.mutex.Lock()
		defer found.mutex.Unlock()
		if err != nil {
			found.failure = err
			return
		}
		found.offsets += record.Offset
		found.counts[record.Partition]++
	})
}

// paced sends what a rate makes due, every millisecond.
func paced(client *kgo.Client, wanted *task, keys [][]byte, found *tally) {
	begin, sent := time.Now(), 0
	for ticks := 1; sent < len(keys); ticks++ {
		due := min(int(time.Since(begin).Seconds()*float64(wanted.Load))+1, len(keys))
		for _, key := range keys[sent:due] {
			produce(client, wanted, key, found)
		}
		sent = due
		time.Sleep(time.Until(begin.Add(time.Duration(ticks) * tick)))
	}
	must(client.Flush(context.Background()))
}

// paces is many goroutines, each of which sends at its own even pace.
func paces(client *kgo.Client, wanted *task, keys [][]byte, found *tally) {
	begin := time.Now()
	var group sync.WaitGroup
	for first := range wanted.Tasks {
		group.Go(func() {
			for number := first; number < len(keys); number += wanted.Tasks {
				time.Sleep(time.Until(begin.Add(time.Duration(float64(number) / float64(wanted.Load) * float64(time.Second)))))
				produce(client, wanted, keys[number], found)
			}
		})
	}
	group.Wait()
	must(client.Flush(context.Background()))
}

// single sends one record at a time, each waited for.
func single(client *kgo.Client, wanted *task, keys [][]byte, found *tally) {
	value := wanted.values[0]
	for _, key := range keys {
		before := time.Now()
		record, err := client.ProduceSync(context.Background(), &kgo.Record{Topic: wanted.Topics[0], Key: key, Value: value}).First()
		must(err)
		took := time.Since(before).Seconds()
		found.mutex.Lock()
		found.latencies = append(found.latencies, took)
		found.offsets += record.Offset
		found.counts[record.Partition]++
		found.mutex.Unlock()
	}
}

// herd is some thousand goroutines, each of which is a single.
func herd(client *kgo.Client, wanted *task, keys [][]byte, found *tally) {
	tasks := min(wanted.Tasks, len(keys))
	var group sync.WaitGroup
	for number := range tasks {
		group.Go(func() {
			var share [][]byte
			for at := number; at < len(keys); at += tasks {
				share = append(share, keys[at])
			}
			single(client, wanted, share, found)
		})
	}
	group.Wait()
}

func keysOf(wanted *task) [][]byte {
	keys := make([][]byte, wanted.WarmUp+wanted.Records)
	for number := range keys {
		if wanted.Keys == 0 {
			keys[number] = fmt.Appendf(nil, "%016x", number)
		} else if number < wanted.Keys {
			keys[number] = fmt.Appendf(nil, "key-%06d", number)
		} else {
			keys[number] = keys[number-wanted.Keys]
		}
	}
	return keys
}

func valuesOf(wanted *task) [][]byte {
	if len(wanted.Values) == 0 {
		return [][]byte{[]byte(strings.Repeat("v", int(wanted.ValueBytes)))}
	}
	values := make([][]byte, len(wanted.Values))
	for number, value := range wanted.Values {
		values[number] = []byte(value)
	}
	return values
}

func cellsOf(wanted *task) map[string]int {
	cells := make(map[string]int, len(wanted.Topics))
	for number, topic := range wanted.Topics {
		cells[topic] = number * wanted.Partitions
	}
	return cells
}

func percentiles(latencies []float64) (float64, float64) {
	if len(latencies) < 2 {
		return 0, 0
	}
	sort.Float64s(latencies)
	return latencies[len(latencies)/2] * 1e3, latencies[len(latencies)*99/100] * 1e3
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// peak is the most memory that this program ever held: Linux's own figure, as ru_maxrss begins with what the parent held.
func peak() int64 {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib * 1024
		}
	}
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	if runtime.GOOS == "darwin" {
		return usage.Maxrss
	}
	return usage.Maxrss * 1024
}

// resident is what the process holds now, or its peak where the system does not tell.
func resident() int64 {
	var size, pages int64
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return peak()
	}
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return peak()
	}
	return pages * int64(os.Getpagesize())
}

func build() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/twmb/franz-go" {
			return "franz-go " + strings.TrimPrefix(module.Version, "v") + ", " + runtime.Version()
		}
	}
	return "franz-go, " + runtime.Version()
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

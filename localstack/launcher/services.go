//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

// Ports are where the engines listen, on the loopback address; 0: a free one.
type Ports struct{ AWS, Dynalite, Azurite, Consul int }

// usual are the ports that people know, and those of compose.yaml.
var usual = Ports{AWS: 4566, Dynalite: 8000, Azurite: 10000, Consul: 8500}

// A service is one engine, and what its endpoint is called.
type service struct {
	name  string
	port  int
	start func(ctx context.Context, s state, port int, log *os.File) (*emulator.Engine, error)
	env   func(url string) map[string]string
}

// services lists what runs, in the order in which it is told.
func services(p Ports) []service {
	return []service{
		{"ministack", p.AWS, func(ctx context.Context, s state, port int, log *os.File) (*emulator.Engine, error) {
			if err := os.MkdirAll(s.code(), 0o750); err != nil {
				return nil, err
			}
			return emulator.StartMinistack(ctx, emulator.MinistackOptions{Port: port, Dir: s.code(), Log: log})
		}, awsEndpoint},
		{"dynalite", p.Dynalite, func(ctx context.Context, _ state, port int, log *os.File) (*emulator.Engine, error) {
			return emulator.StartDynalite(ctx, emulator.Options{Port: port, Log: log})
		}, func(url string) map[string]string { return map[string]string{"CLOUDLEASE_DYNALITE_URL": url} }},
		{"azurite", p.Azurite, func(ctx context.Context, _ state, port int, log *os.File) (*emulator.Engine, error) {
			return emulator.StartAzurite(ctx, emulator.AzuriteOptions{Port: port, Log: log})
		}, func(url string) map[string]string {
			return map[string]string{"AZURE_STORAGE_CONNECTION_STRING": emulator.AzuriteConnection(url)}
		}},
		{"consul", p.Consul, startConsul, func(url string) map[string]string { return map[string]string{"CONSUL_HTTP_ADDR": url} }},
	}
}

// awsEndpoint is what the AWS SDKs read. The credentials are made up; ministack takes any.
func awsEndpoint(url string) map[string]string {
	return map[string]string{
		"AWS_ENDPOINT_URL": url, "AWS_REGION": emulator.Region, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
	}
}

func startConsul(ctx context.Context, _ state, port int, log *os.File) (*emulator.Engine, error) {
	ports, err := emulator.FreeConsulPorts()
	if err != nil {
		return nil, err
	}
	if port != 0 {
		ports.HTTP = port
	}
	return emulator.StartConsul(ctx, emulator.ConsulOptions{Ports: ports, Log: log})
}

// busy says which of the ports are taken, all at once.
func busy(all []service) error {
	var errs []error
	for _, s := range all {
		if s.port == 0 {
			continue
		}
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: s.port})
		switch {
		case err == nil:
			errs = append(errs, l.Close())
		case errors.Is(err, syscall.EADDRINUSE):
			errs = append(errs, fmt.Errorf("port %d, for %s, is in use: end what listens there, or take free ports with: make up PORTS=free", s.port, s.name))
		default:
			errs = append(errs, fmt.Errorf("port %d, for %s: %w", s.port, s.name, err))
		}
	}
	return errors.Join(errs...)
}

// running are the engines of all services, in the same order.
type running []*emulator.Engine

// startAll starts all at once. If one does not start, none stays.
func startAll(ctx context.Context, s state, all []service) (running, error) {
	engines, errs := make(running, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for i, each := range all {
		wg.Go(func() {
			log, err := os.Create(s.log(each.name))
			if err == nil {
				engines[i], err = each.start(ctx, s, each.port, log)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, engines.close())
	}
	return engines, nil
}

func (r running) close() error {
	var errs []error
	for _, e := range r {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	return errors.Join(errs...)
}

func (r running) urls() []string {
	urls := make([]string, len(r))
	for i, e := range r {
		urls[i] = e.URL
	}
	return urls
}

// urls are where the engines are on these ports, without asking.
func (p Ports) urls() []string {
	at := func(port int) string { return "http://127.0.0.1:" + strconv.Itoa(port) }
	return []string{at(p.AWS), at(p.Dynalite), at(p.Azurite) + "/" + emulator.AzuriteAccount, at(p.Consul)}
}

// environment is what endpoints.env says.
func environment(all []service, urls []string) string {
	var b strings.Builder
	for i, each := range all {
		env := each.env(urls[i])
		for _, name := range names(env) {
			b.WriteString(name + "=" + quote(env[name]) + "\n")
		}
	}
	return b.String()
}

// quote is text as both a shell and the Go programs here read it.
func quote(text string) string {
	if strings.ContainsAny(text, ";&= ") {
		return "'" + text + "'"
	}
	return text
}

// ends says which engine has ended by itself, if one does before ctx is done.
func (r running) ends(ctx context.Context, all []service) (name string, ended bool) {
	which := make(chan string, len(r))
	for i, e := range r {
		go func() {
			select {
			case <-e.Exited():
				which <- all[i].name
			case <-ctx.Done():
			}
		}()
	}
	select {
	case name := <-which:
		return name, true
	case <-ctx.Done():
		return "", false
	}
}

func decimal(p Ports) []string {
	return []string{
		"-aws", strconv.Itoa(p.AWS), "-dynalite", strconv.Itoa(p.Dynalite), "-azurite", strconv.Itoa(p.Azurite), "-consul", strconv.Itoa(p.Consul),
	}
}

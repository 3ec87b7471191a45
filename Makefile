# make run   sets up, builds and shows Cofferdam at work
# make test  sets up and runs every gate and every test

TARGET := $(or $(CARGO_TARGET_DIR),target)
PREFIX ?= /usr/local

.PHONY: help run build setup test check bench install
.DEFAULT_GOAL := help

help:
	@echo 'make run      set up, build, and show three tasks at work in a throwaway repository'
	@echo 'make test     set up, then every gate and every test'
	@echo 'make check    the quick gates only: formatting, house rules, lints'
	@echo 'make bench    the figures to hold, measured on this machine'
	@echo 'make install  build and install to $(PREFIX)/bin'

setup:
	@scripts/setup

build: setup
	cargo build --release --bin cofferdam

run: build
	@$(TARGET)/release/cofferdam demo

test:
	@scripts/setup --tests
	@scripts/test

check: setup
	cargo xtask check --lints

bench: setup
	cargo xtask bench

install: build
	install -D -m 0755 $(TARGET)/release/cofferdam $(DESTDIR)$(PREFIX)/bin/cofferdam

# A name of some length, and the program crashes. Where, and what has been overwritten?
# Lines with "=>" say what is to be seen, as regular expressions, in this order.
set pagination off
set confirm off
break build_message
run
# => Breakpoint 1, build_message
# What the function will return to lies behind its variables: a hardware watchpoint on it.
watch -location *(long *) ($rbp + 8)
# => Hardware watchpoint 2: -location
continue
# => Hardware watchpoint 2
# => Old value = \d+
# => New value = \d+
# It is a copy of the name that writes there.
backtrace
# => build_message|str(cat|cpy)
delete
continue
# => Program received signal SIGSEGV
# => build_message
kill
quit
